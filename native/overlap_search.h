// Overlap search with the scan of some instruction set: over all segments, and over the lists of each query.
//
// Declarations that overlap_scan.h, compiled for each instruction set, and the two searches share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.h"

// For functions on counters, which stay in registers only within one function, and for functions that only
// prefetch, which compilers otherwise remove because they seem to have no effect.
#define POSH_INLINE __attribute__((always_inline)) inline

namespace posh {

constexpr std::size_t max_tile_words = 32;
constexpr std::size_t max_hits = 64 * max_tile_words + 2;

struct Tile {
  const std::uint64_t* planes;  // the first word of plane 0
  std::size_t stride;
  std::size_t n_words;           // a multiple of 4, at most max_tile_words
  const std::uint64_t* allowed;  // (n_words), 1 = may be found
};

struct Hit {
  std::uint32_t position, score;
};

// The result of scanning tiles: which documents pass, and their counters, block after block.
struct ScanResult {
  std::size_t n_words;
  int n_counters;
  std::uint64_t* passing;     // (n_words)
  const std::uint64_t* sums;  // (n_words * n_counters)
};

// The number of counters for overlaps of up to n_planes.
static constexpr int counters_for(std::size_t n_planes) {  // internal linkage: see avx2_begin.h
  int n = 0;
  for (; n_planes; n_planes >>= 1) ++n;
  return n;
}

// Finds the allowed documents that share at least `threshold` bits with the query, by ascending position.
// It may leave out a document if k others of the tile have higher scores.
//   IN  query    (n_active) bit numbers;  0 <= threshold <= n_active
//   OUT offsets  scratch of n_active entries
//   OUT hits     room for max_hits entries; returns how many were written
using ScanFn = std::size_t (*)(const Tile& tile, const std::uint16_t* query, std::size_t n_active,
                               std::uint32_t threshold, std::size_t k, std::uint32_t* offsets, Hit* hits);

// The same in steps, for several tiles whose blocks lie one after the other.
struct ScanSteps {
  // Scans a tile. Returns whether some document passed.
  //   OUT passing, sums  of this tile: (n_words) and (n_words * counters_for(n_active))
  bool (*collect)(const Tile& tile, const std::uint16_t* query, std::size_t n_active, std::uint32_t threshold,
                  std::uint32_t* offsets, std::uint64_t* passing, std::uint64_t* sums);
  // If more than k documents pass, splits them at the k-th best score and returns that score; otherwise returns -1.
  // After a split, only the documents with higher scores still pass, fewer than k.
  //   OUT equal  (n_words) documents that have the k-th best score; unchanged if there is no split
  std::int32_t (*split)(const ScanResult& result, std::size_t k, std::uint64_t* equal);
  // Writes the passing documents and returns their number; `hits` has room for 64 * n_words + 2 entries.
  std::size_t (*extract)(const ScanResult& result, Hit* hits);
};

bool search_tiles(const Search& search, ScanFn scan, std::int64_t* ids, std::int32_t* scores);
bool search_lists(const ListSearch& search, const ScanSteps& steps, std::int64_t* ids, std::int32_t* scores);

}  // namespace posh
