// Overlap search of one query in one tile of bit-sliced documents: the algorithm, written once for every
// instruction set. overlap_search.h declares the types and the contracts of the functions.
//
// Carry-save adders add the planes of the query's bits into vertical counters: sums[0] holds the lowest bit of
// every document's overlap, sums[1] the next bit, and so on. Comparing all documents with a threshold takes one
// operation per counter. Only documents that pass are then visited one by one.
//
// `Docs` is a vector of bits, one per document, that supplies & | ^ and
//   static constexpr size_t n_words;   static Docs none(), all(), load(const uint64_t*);
//   void store(uint64_t*) const;       bool any() const;       size_t count() const;
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "overlap_search.h"

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

constexpr int max_counters = 17;  // a query has at most 65,536 active bits
constexpr int max_unrolled = 64;  // queries with more active bits are added in a loop

// Adds a and b to sum and returns the carry: old sum + a + b = new sum + 2 * carry. An instruction set may
// overload it.
template <class Docs>
POSH_INLINE Docs full_adder(Docs& sum, Docs a, Docs b) {
  const Docs differ = a ^ b;
  const Docs carry = (a & b) | (sum & differ);
  sum = sum ^ differ;
  return carry;
}

template <class Docs>
struct OverlapScan {
  // Adds 2^Levels planes to sums[0 .. Levels) and returns the carry into sums[Levels].
  template <int Levels>
  POSH_INLINE static Docs add_planes(Docs* sums, const std::uint64_t* words, const std::uint32_t* offsets) {
    if constexpr (Levels == 0) {
      return Docs::load(words + *offsets);
    } else {
      const Docs first = add_planes<Levels - 1>(sums, words, offsets);
      const Docs second = add_planes<Levels - 1>(sums, words, offsets + (1 << (Levels - 1)));
      return full_adder(sums[Levels - 1], first, second);
    }
  }

  // Adds the carry to the counters sums[from .. to).
  POSH_INLINE static void add_carry(Docs carry, Docs* sums, int from, int to) {
    for (int level = from; level < to; ++level) {
      const Docs sum = sums[level];
      sums[level] = sum ^ carry;
      carry = sum & carry;
    }
  }

  // The number of planes is known to the compiler, so that it keeps the counters in registers.
  template <int Planes, int Counters>
  POSH_INLINE static void add_unrolled(Docs* sums, const std::uint64_t* words, const std::uint32_t* offsets) {
    constexpr int levels = counters_for(Planes) - 1, group = 1 << levels;
    const Docs carry = add_planes<levels>(sums, words, offsets);
    add_carry(carry, sums, levels, Counters);
    if constexpr (Planes > group) add_unrolled<Planes - group, Counters>(sums, words, offsets + group);
  }

  // Adds any number of planes: as many groups of 2^Levels as fit, then smaller groups.
  template <int Levels>
  static void add_looped(Docs* sums, int n_counters, const std::uint64_t* words, const std::uint32_t* offsets,
                         std::size_t n_planes) {
    constexpr std::size_t group = std::size_t{1} << Levels;
    for (; n_planes >= group; n_planes -= group, offsets += group) {
      const Docs carry = add_planes<Levels>(sums, words, offsets);
      add_carry(carry, sums, Levels, n_counters);
    }
    if constexpr (Levels > 0) add_looped<Levels - 1>(sums, n_counters, words, offsets, n_planes);
  }

  // Documents whose counter is at least the threshold. Compares from the lowest bit up: each higher bit overrules
  // the result of the lower ones.
  POSH_INLINE static Docs at_least(std::uint32_t threshold, const Docs* sums, int n_counters) {
    Docs passing = Docs::all();
    for (int level = 0; level < n_counters; ++level) {
      if (threshold >> level & 1)
        passing = passing & sums[level];
      else
        passing = passing | sums[level];
    }
    return passing;
  }

  // Scans a tile and returns whether some document passed. Planes = 0 stands for any number of planes.
  // Stores every block, even if none of its documents passed: a branch on that would be mispredicted.
  template <int Planes>
  static bool collect(const Tile tile, std::uint32_t threshold, const std::uint32_t* offsets, std::size_t n_planes,
                      std::uint64_t* passing_words, std::uint64_t* sum_words) {
    const int n_counters = counters_for(Planes ? Planes : n_planes);
    Docs any = Docs::none();
    for (std::size_t word = 0; word < tile.n_words; word += Docs::n_words) {
      const Docs allowed = Docs::load(tile.allowed + word);
      if (!allowed.any()) {
        allowed.store(passing_words + word);
        continue;
      }
      Docs sums[Planes ? counters_for(Planes) : max_counters];
      for (int level = 0; level < n_counters; ++level) sums[level] = Docs::none();
      if constexpr (Planes)
        add_unrolled<Planes, counters_for(Planes)>(sums, tile.planes + word, offsets);
      else
        add_looped<6>(sums, n_counters, tile.planes + word, offsets, n_planes);
      const Docs passing = allowed & at_least(threshold, sums, n_counters);
      any = any | passing;
      passing.store(passing_words + word);
      for (int level = 0; level < n_counters; ++level)
        sums[level].store(sum_words + word * n_counters + level * Docs::n_words);
    }
    return any.any();
  }

  static std::size_t count(const std::uint64_t* words, std::size_t n_words) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < n_words; ++i) n += __builtin_popcountll(words[i]);
    return n;
  }

  // The counters of the block that holds this word.
  static const std::uint64_t* sums_of(const ScanResult& result, std::size_t word) {
    return result.sums + word / Docs::n_words * Docs::n_words * result.n_counters;
  }

  // Calls use(word, bits) for each block: its first word, and the bits of its counters at this level.
  template <class Use>
  POSH_INLINE static void each_block(const ScanResult& result, int level, Use use) {
    for (std::size_t word = 0; word < result.n_words; word += Docs::n_words)
      use(word, Docs::load(sums_of(result, word) + level * Docs::n_words));
  }

  // Finds the k-th best score bit by bit, from the highest counter down. `equal` holds the documents whose scores
  // agree with the k-th best score in the bits found so far.
  static std::int32_t split(const ScanResult& result, std::size_t k, std::uint64_t* equal) {
    if (count(result.passing, result.n_words) <= k) return -1;
    std::copy_n(result.passing, result.n_words, equal);
    std::fill_n(result.passing, result.n_words, 0);
    std::size_t n_better = 0;
    std::int32_t score = 0;
    for (int level = result.n_counters; level-- > 0;) {
      std::size_t n = n_better;
      each_block(result, level, [&](std::size_t word, Docs bit) { n += (Docs::load(equal + word) & bit).count(); });
      if (n >= k) {
        score |= std::int32_t{1} << level;
        each_block(result, level,
                   [&](std::size_t word, Docs bit) { (Docs::load(equal + word) & bit).store(equal + word); });
      } else {
        n_better = n;
        each_block(result, level, [&](std::size_t word, Docs bit) {
          const Docs same = Docs::load(equal + word), higher = same & bit;
          (Docs::load(result.passing + word) | higher).store(result.passing + word);
          (same ^ higher).store(equal + word);
        });
      }
    }
    return score;
  }

  // Writes the positions of the passing documents. It always writes two per word: most words have no more, and a
  // branch on the exact number would be mispredicted.
  static std::size_t list_passing(const ScanResult& result, Hit* hits) {
    constexpr std::uint64_t last = std::uint64_t{1} << 63;  // ctz(0) is undefined
    std::size_t n = 0;
    for (std::size_t word = 0; word < result.n_words; ++word) {
      std::uint64_t left = result.passing[word];
      std::size_t next = n;
      n += __builtin_popcountll(left);
      do {
        for (int twice = 0; twice < 2; ++twice, left &= left - 1)
          hits[next++].position = static_cast<std::uint32_t>(64 * word + __builtin_ctzll(left | last));
      } while (left);
    }
    return n;
  }

  // Writes the passing documents with their scores.
  static std::size_t extract(const ScanResult& result, Hit* hits) {
    const std::size_t n = list_passing(result, hits);
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t word = hits[i].position / 64, bit = hits[i].position % 64;
      const std::uint64_t* sums = sums_of(result, word) + word % Docs::n_words;
      std::uint32_t score = 0;
      for (int level = result.n_counters; level-- > 0;) score = 2 * score + (sums[level * Docs::n_words] >> bit & 1);
      hits[i].score = score;
    }
    return n;
  }

  using CollectFn = bool (*)(Tile, std::uint32_t, const std::uint32_t*, std::size_t, std::uint64_t*, std::uint64_t*);

  template <int... Planes>
  static CollectFn collect_for(std::size_t n_planes, std::integer_sequence<int, Planes...>) {
    static constexpr CollectFn table[] = {collect<Planes>...};
    return table[n_planes < sizeof...(Planes) ? n_planes : 0];
  }

  static bool collect_tile(const Tile& tile, const std::uint16_t* query, std::size_t n_active, std::uint32_t threshold,
                           std::uint32_t* offsets, std::uint64_t* passing, std::uint64_t* sums) {
    const auto stride = static_cast<std::uint32_t>(tile.stride);
    for (std::size_t i = 0; i < n_active; ++i) offsets[i] = query[i] * stride;
    const CollectFn collect = collect_for(n_active, std::make_integer_sequence<int, max_unrolled + 1>());
    return collect(tile, threshold, offsets, n_active, passing, sums);
  }

  // If many documents pass, drops those that k others of the tile exceed, so that they need not be visited.
  static void drop_exceeded(const ScanResult& result, std::size_t k) {
    if (count(result.passing, result.n_words) <= 2 * k + 16) return;
    std::uint64_t equal[max_tile_words];
    split(result, k, equal);
    for (std::size_t word = 0; word < result.n_words; ++word) result.passing[word] |= equal[word];
  }

  static std::size_t scan(const Tile& tile, const std::uint16_t* query, std::size_t n_active, std::uint32_t threshold,
                          std::size_t k, std::uint32_t* offsets, Hit* hits) {
    alignas(64) std::uint64_t passing[max_tile_words], sums[max_tile_words * max_counters];
    if (!collect_tile(tile, query, n_active, threshold, offsets, passing, sums)) return 0;
    const ScanResult result{tile.n_words, counters_for(n_active), passing, sums};
    drop_exceeded(result, k);
    return extract(result, hits);
  }

  static constexpr ScanSteps steps{collect_tile, split, extract};
};

}  // namespace
}  // namespace posh
