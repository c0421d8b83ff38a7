// Hamming search over packed codes: the algorithm, written once for every instruction set.
// `Isa::different(a, b, n_bytes)` counts the bits in which two codes differ.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels.h"
#include "keys.h"

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

// A tile of documents stays in the L2 cache while all queries of a task are compared with it.
constexpr std::size_t queries_per_task = 16, tile_bytes = 1 << 17;

template <class Isa>
void scan_tile(const HammingSearch& s, const std::uint8_t* query, std::size_t first, std::size_t last, BestKeys& best) {
  for (std::size_t doc = first; doc < last; ++doc)
    if (passes(s.passing, doc)) {
      const std::size_t equal = s.n_bits - Isa::different(query, s.codes + doc * s.n_bytes, s.n_bytes);
      best.add(descending_key(static_cast<std::uint32_t>(equal), static_cast<std::uint32_t>(doc)));
    }
}

template <class Isa>
bool hamming_topk(const HammingSearch& s, std::int64_t* ids, std::int32_t* scores) {
  const std::size_t tile = std::max<std::size_t>(1, tile_bytes / s.n_bytes);
  const std::size_t n_tasks = (s.n_queries + queries_per_task - 1) / queries_per_task;
  Cancellation cancellation(s.poll);
  run_tasks(n_tasks, s.n_threads, cancellation, [&](std::size_t task) {
    const std::size_t first_query = task * queries_per_task;
    std::vector<BestKeys> best(std::min(queries_per_task, s.n_queries - first_query), BestKeys(s.k));
    for (std::size_t first = 0; first < s.n_docs && !cancellation.requested(); first += tile)
      for (std::size_t q = 0; q < best.size(); ++q)
        scan_tile<Isa>(s, s.queries + (first_query + q) * s.n_bytes, first, std::min(first + tile, s.n_docs), best[q]);
    for (std::size_t q = 0; q < best.size(); ++q) {
      std::int64_t* id = ids + (first_query + q) * s.k;
      std::int32_t* score = scores + (first_query + q) * s.k;
      std::fill_n(id, s.k, -1);
      std::fill_n(score, s.k, -1);
      for (const std::uint64_t key : best[q].sorted()) {
        *id++ = position_of_key(key);
        *score++ = static_cast<std::int32_t>(key >> 32);
      }
    }
  });
  return !cancellation.requested();
}

// Eight bytes at a time. The compiler turns the built-in into one instruction if the CPU has it.
struct ByWords {
  static std::size_t different(const std::uint8_t* a, const std::uint8_t* b, std::size_t n_bytes) {
    std::size_t count = 0, i = 0;
    for (; i + 8 <= n_bytes; i += 8) count += static_cast<std::size_t>(__builtin_popcountll(word(a + i) ^ word(b + i)));
    for (; i < n_bytes; ++i) count += static_cast<std::size_t>(__builtin_popcount(a[i] ^ b[i]));
    return count;
  }
  static unsigned long long word(const std::uint8_t* bytes) {
    unsigned long long value;
    __builtin_memcpy(&value, bytes, sizeof value);
    return value;
  }
};

}  // namespace
}  // namespace posh
