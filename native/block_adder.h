// Counts the planes of a query for one or two groups of 256 documents together. Counts are bit-sliced: one vector holds
// bit i of the counts of all documents.
//
// Minus planes are complemented. The counts start at 2^m - threshold, so that bit m is set if they reach the threshold.
// `Bits` is a vector of n_groups * 256 bits with load, all, bit_of, store, and with &, |, ^ or its own add and
// add_complements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "block_state.h"

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

// Adds a and b to the vector of ones; returns the carries.
template <class Bits>
inline __attribute__((always_inline)) Bits add(Bits& ones, Bits a, Bits b) {
  const Bits either = a ^ b, carries = (a & b) | (ones & either);
  ones = ones ^ either;
  return carries;
}

// The same for the complements of a and b.
template <class Bits>
inline __attribute__((always_inline)) Bits add_complements(Bits& ones, Bits a, Bits b) {
  const Bits either = a ^ b, carries = (ones & either) | ((a | b) ^ Bits::all(true));
  ones = ones ^ either;
  return carries;
}

// Adds 2^Level planes to the counts; returns the carries out of bit Level - 1.
template <class Bits, int Level, bool Complement, bool Prefetch>
inline __attribute__((always_inline)) Bits add_planes(Bits* counts, const std::uint8_t* planes,
                                                      const std::uint32_t* rows, const std::uint8_t* next,
                                                      const std::uint32_t* next_rows) {
  if constexpr (Level == 1) {
    if constexpr (Prefetch) {
      __builtin_prefetch(next + next_rows[0]);
      __builtin_prefetch(next + next_rows[1]);
    }
    const Bits a = Bits::load(planes + rows[0]), b = Bits::load(planes + rows[1]);
    return Complement ? add_complements(counts[0], a, b) : add(counts[0], a, b);
  } else {
    constexpr int half = 1 << (Level - 1);
    const Bits a = add_planes<Bits, Level - 1, Complement, Prefetch>(counts, planes, rows, next, next_rows);
    const Bits b =
        add_planes<Bits, Level - 1, Complement, Prefetch>(counts, planes, rows + half, next, next_rows + half);
    return add(counts[Level - 1], a, b);
  }
}

template <class Bits, int M, bool Complement, bool Prefetch>
inline __attribute__((always_inline)) void add_sixteens(Bits* counts, const std::uint8_t* planes,
                                                        const std::uint32_t* rows, std::size_t n,
                                                        const std::uint8_t* next, const std::uint32_t* next_rows) {
  for (std::size_t i = 0; i < n; i += 16) {
    Bits carries = add_planes<Bits, 4, Complement, Prefetch>(counts, planes, rows + i, next, next_rows + i);
#pragma GCC unroll 8
    for (int bit = 4; bit <= M; ++bit) {
      const Bits before = counts[bit];
      counts[bit] = before ^ carries;
      carries = before & carries;
    }
  }
}

// Returns which documents of the groups in one vector reach their thresholds; n_plus + n_minus < 2^M.
template <class Bits, int M, bool Prefetch>
inline __attribute__((always_inline)) Bits find_passing(const BlockScan& scan, std::size_t group, std::size_t line) {
  std::uint32_t starts[Bits::n_groups];
  for (std::size_t i = 0; i < Bits::n_groups; ++i)
    starts[i] = (1u << M) - static_cast<std::uint32_t>(scan.thresholds[group + i]);
  Bits counts[M + 1];
#pragma GCC unroll 16
  for (int bit = 0; bit <= M; ++bit) counts[bit] = Bits::bit_of(starts, bit);
  const std::uint8_t* planes = scan.planes + group * group_bytes;
  const std::uint8_t* next = Prefetch ? scan.next_planes + line * 64 : nullptr;
  const std::uint32_t* next_rows = Prefetch ? scan.next_rows : scan.rows;
  add_sixteens<Bits, M, false, Prefetch>(counts, planes, scan.rows, scan.n_plus, next, next_rows);
  add_sixteens<Bits, M, true, Prefetch>(counts, planes, scan.rows + scan.n_plus, scan.n_minus, next,
                                        next_rows + scan.n_plus);
  return counts[M];
}

// Counts the groups from `group` on, as long as they fill a vector. Each vector prefetches one cache line of the next
// block's rows.
template <class Bits, int M>
inline __attribute__((always_inline)) void count_groups(const BlockScan& scan, std::size_t& group, std::size_t& line,
                                                        std::uint64_t* masks) {
  const std::int32_t most = static_cast<std::int32_t>(scan.n_plus + scan.n_minus);
  for (; group + Bits::n_groups <= scan.n_groups; group += Bits::n_groups, ++line) {
    const std::int32_t* thresholds = scan.thresholds + group;
    if (*std::min_element(thresholds, thresholds + Bits::n_groups) > most)
      Bits::all(false).store(masks + 4 * group);
    else if (line < scan.n_next_lines)
      find_passing<Bits, M, true>(scan, group, line).store(masks + 4 * group);
    else
      find_passing<Bits, M, false>(scan, group, line).store(masks + 4 * group);
  }
}

// Counts all groups; n_plus + n_minus < 2^M. `Rest` is a vector of one group, for the remaining groups.
template <class Bits, class Rest, int M>
void count_planes_below(const BlockScan& scan, std::uint64_t* masks) {
  std::size_t group = 0, line = 0;
  count_groups<Bits, M>(scan, group, line, masks);
  if constexpr (Bits::n_groups > 1) count_groups<Rest, M>(scan, group, line, masks);
}

template <class Bits, class Rest = Bits>
void count_planes(const BlockScan& scan, std::uint64_t* masks) {
  const std::size_t n = scan.n_plus + scan.n_minus;
  if (n < 64) return count_planes_below<Bits, Rest, 6>(scan, masks);
  if (n < 128) return count_planes_below<Bits, Rest, 7>(scan, masks);
  if (n < 256) return count_planes_below<Bits, Rest, 8>(scan, masks);
  return count_planes_below<Bits, Rest, 9>(scan, masks);
}

}  // namespace
}  // namespace posh
