// The state of a search in blocks: queries, their candidates, and the workspace that searches reuse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "blocks.h"
#include "prefetch.h"

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

constexpr std::uint32_t doc_bits = 11;  // of a position in a block
static_assert(max_block_docs == 1u << doc_bits);

constexpr std::size_t spare = 32;  // elements that Isa::expand may write past its end, and sift() may read

constexpr float lowest = -std::numeric_limits<float>::infinity();

// The scan of one block for one query.
struct BlockScan {
  const std::uint8_t* planes;
  const std::uint32_t* rows;  // offsets of the rows of the planes: n_plus, then n_minus
  std::size_t n_plus, n_minus;
  const std::int32_t* thresholds;  // for each group; a document passes if plus bits + clear minus bits reach it
  std::size_t n_groups;
  const std::uint8_t* next_planes;  // the scan of group g prefetches line g of these rows, for g < n_next_lines
  const std::uint32_t* next_rows;
  std::size_t n_next_lines;
};

// Quantised queries for routing: query i is units[i] * numbers[i * stride + …], padded with zeros to a multiple of 4
// columns.
struct Routed {
  const std::int8_t* numbers;
  std::size_t stride;
  const float* units;
  std::size_t n;
};

// A query as it is compared with the residuals of one list. For products only list_score differs between lists.
struct View {
  const std::int8_t* numbers;   // unit * numbers is multiplied by the residuals
  const std::uint32_t* planes;  // n_plus bit numbers, then n_minus
  float unit;
  float half_offset;  // 16 * (sum over high halves) + half_offset: estimated product plus a margin
  std::int32_t sum;   // of the numbers, times 128
  float reach;        // sum of the projections at the planes, divided by the square of the length
  float list_score;
};

struct alignas(64) Query {
  View view;           // in the list that is being visited
  float limit, entry;  // the k-th and the n_keep-th best score: lower scores cannot enter
  float scan_limit;    // the limit before the last block was scored: blocks are scanned one block ahead
  std::uint32_t n_kept, index;
};

// The lists that a query visits, in this order.
struct Probes {
  const std::uint16_t* lists;  // (n) ascending
  const float* scores;         // (n)
  std::size_t n;
};

// A document that takes part in the last step. A higher key is better.
struct Candidate {
  std::uint64_t key;
  std::uint32_t block, doc;
};

struct Visit {
  std::uint32_t query;
  float list_score;
};

// A block that a single query visits, and the position of its list in Workspace::visited.
struct Stop {
  std::uint32_t block, list;
};

struct ListScore {
  std::uint32_t list;
  float score;
};

struct Survivor {
  std::uint32_t pair;
  std::int32_t high_sum;
};

// Grows an array to at least n elements. Never shrinks it, so that reused memory is not cleared again.
template <class T>
T* reserve(std::vector<T>& array, std::size_t n) {
  if (array.size() < n) array.resize(n);
  return array.data();
}

template <class T>
std::size_t bytes_of(const std::vector<T>& array) {
  return array.capacity() * sizeof(T);
}

// A query in one list: its view, and the offsets of its rows in blocks of each width.
struct Near {
  View view;
  std::vector<std::int8_t> numbers;
  std::vector<std::uint32_t> planes, rows_by_width[max_groups + 1];
  bool has_rows[max_groups + 1];

  std::size_t bytes() const {
    std::size_t sum = bytes_of(numbers) + bytes_of(planes);
    for (const std::vector<std::uint32_t>& rows : rows_by_width) sum += bytes_of(rows);
    return sum;
  }
};
constexpr std::size_t n_near = 3;  // the lists of the scanned block, of the block before it, and of the one after it

// The buffers of one search on one thread. Allocating them each time would cost more than a small search, because the
// system clears new memory. So each thread keeps its workspace between searches, unless it has grown beyond
// max_kept_bytes.
struct Workspace {
  // For all queries, by their position in the batch.
  std::vector<Query> queries;
  std::vector<std::int8_t> numbers;
  std::vector<std::uint32_t> planes;             // (n, n_planes) bit numbers
  std::vector<Candidate> kept;                   // (n, n_keep), best first
  std::vector<std::vector<Candidate>> reaching;  // (n) the candidates that reach the bound, in any order
  std::vector<std::uint16_t> probes;             // the lists that queries visit, query after query, ascending for each
  std::vector<float> list_scores;                // the scores of these lists
  std::vector<std::size_t> first_probe;          // (n + 1) where each query begins in `probes`
  std::vector<float> coded, projected;           // (n, n_columns), (n, n_bits)

  // For a tile of queries, or for one query in a list.
  std::vector<float> routed, units, reduced, difference, differences;
  std::vector<std::int8_t> wide_numbers;  // of queries before they are reduced
  std::vector<std::uint16_t> chosen;

  // For a block.
  std::vector<std::uint64_t> masks;
  std::vector<std::uint32_t> pairs, waiting_docs, rows;
  std::vector<Survivor> survivors;
  std::size_t n_survivors = 0;

  // For the order in which queries visit lists and blocks.
  std::vector<Visit> visits;
  std::vector<std::size_t> visit_starts;
  std::vector<Stop> stops;
  std::vector<ListScore> visited;
  std::vector<std::uint16_t> wider_probes;  // of a query that is repeated
  std::vector<float> wider_scores;
  Near near[n_near];
  std::vector<std::vector<std::uint64_t>> allowed;  // by block, if there is a filter

  // For the last step.
  std::vector<std::uint64_t> exact;
  std::vector<float> decoded;

  // The memory of all buffers. tests/native/workspace_driver.cpp compares it with the allocations of a search.
  std::size_t bytes() const {
    std::size_t sum = sum_bytes(queries, numbers, planes, kept, probes, list_scores, first_probe, coded, projected) +
                      sum_bytes(routed, units, reduced, difference, differences, wide_numbers, chosen) +
                      sum_bytes(masks, pairs, waiting_docs, rows, survivors) +
                      sum_bytes(visits, visit_starts, stops, visited, wider_probes, wider_scores, allowed, reaching) +
                      sum_bytes(exact, decoded);
    for (const Near& state : near) sum += state.bytes();
    for (const std::vector<std::uint64_t>& words : allowed) sum += bytes_of(words);
    for (const std::vector<Candidate>& candidates : reaching) sum += bytes_of(candidates);
    return sum;
  }

 private:
  template <class... Arrays>
  static std::size_t sum_bytes(const Arrays&... arrays) {
    return (bytes_of(arrays) + ...);
  }
};

}  // namespace
}  // namespace posh
