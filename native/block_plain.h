// The primitives of the search in blocks without vector instructions: the specification of the others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "block_state.h"
#include "projection.h"

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

// Sums in the order of eight lanes: element i belongs to lane i % 8.
template <class Term>
float eight_sums(std::size_t n, Term term) {
  float lanes[8] = {};
  for (std::size_t i = 0; i < n; ++i) lanes[i % 8] += term(i);
  for (std::size_t i = 0; i < 4; ++i) lanes[i] += lanes[i + 4];
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

struct BlockPlain {
  static void route(const Router& router, const Routed& queries, float* scores) {
    for (std::size_t i = 0; i < queries.n; ++i)
      route_one(router, queries.numbers + i * queries.stride, queries.units[i], scores + i * 8 * router.n_groups());
  }

  static void route_one(const Router& router, const std::int8_t* numbers, float unit, float* scores) {
    const std::size_t n_quads = router.n_quads();
    std::int32_t offset = 0;  // of the 64 in each number
    for (std::size_t j = 0; j < router.n_columns; ++j) offset += 64 * numbers[j];
    for (std::size_t list = 0; list < 8 * router.n_groups(); ++list) {
      const std::uint8_t* centroid = router.numbers.data() + list / 8 * n_quads * 32 + list % 8 * 4;
      std::int32_t sum = -offset;
      for (std::size_t j = 0; j < router.n_columns; ++j) sum += centroid[j / 4 * 32 + j % 4] * numbers[j];
      scores[list] = static_cast<float>(sum) * (router.step[list] * unit) + router.bias[list];
    }
  }

  static std::size_t largest(const float* scores, std::size_t n) {
    return static_cast<std::size_t>(std::max_element(scores, scores + n) - scores);
  }

  static void masks(const BlockScan& scan, std::uint64_t* masks) {
    const std::size_t n_planes = scan.n_plus + scan.n_minus;
    for (std::size_t i = 0; i < 4 * scan.n_groups; ++i) masks[i] = 0;
    for (std::size_t doc = 0; doc < scan.n_groups * group_docs; ++doc) {
      std::int32_t count = 0;
      for (std::size_t j = 0; j < n_planes; ++j) {
        const bool is_set = scan.planes[scan.rows[j] + doc / 8] >> (doc % 8) & 1;
        count += is_set == (j < scan.n_plus);
      }
      if (count >= scan.thresholds[doc / group_docs]) masks[doc / 64] |= std::uint64_t{1} << doc % 64;
    }
  }

  static std::uint32_t* expand(const std::uint64_t* mask, std::uint32_t first, std::uint32_t* to) {
    for (std::uint32_t w = 0; w < 4; ++w)
      for (std::uint64_t bits = mask[w]; bits; bits &= bits - 1)
        *to++ = first + 64 * w + static_cast<std::uint32_t>(__builtin_ctzll(bits));
    return to;
  }

  static std::int32_t half_sum(const std::uint8_t* halves, const std::int8_t* numbers, std::size_t width,
                               std::size_t tail) {
    std::int32_t sum = 0;
    for (std::size_t first = 0; first < width; first += 64, halves += 32, numbers += 64) {
      const std::size_t n = first + 64 < width ? 32 : tail;
      for (std::size_t b = 0; b < n; ++b) sum += (halves[b] & 15) * numbers[b] + (halves[b] >> 4) * numbers[n + b];
    }
    return sum;
  }

  static unsigned above(const std::uint8_t* const (&halves)[4], const Query* const (&queries)[4], const Fit (&fits)[4],
                        std::size_t width, std::size_t tail, std::int32_t (&sums)[4]) {
    unsigned good = 0;
    for (unsigned i = 0; i < 4; ++i) {
      const View& view = queries[i]->view;
      sums[i] = half_sum(halves[i], view.numbers, width, tail);
      const float product = static_cast<float>(16 * sums[i]) + view.half_offset;
      const float score = product * (fits[i].scale * view.unit) + (fits[i].offset + view.list_score);
      if (score >= queries[i]->entry) good |= 1u << i;
    }
    return good;
  }

  static void hadamard(float* values, std::size_t n) { hadamard_from(1, values, n); }

  static float product(const float* a, const float* b, std::size_t n) {
    return eight_sums(n, [=](std::size_t i) { return a[i] * b[i]; });
  }

  static float distance(const float* a, const float* b, std::size_t n) {
    return eight_sums(n, [=](std::size_t i) { return (a[i] - b[i]) * (a[i] - b[i]); });
  }

  template <std::size_t n_rows, std::size_t n_vectors>
  static void products(const float* const (&rows)[n_rows], const float* const (&vectors)[n_vectors], std::size_t n,
                       float (&sums)[n_vectors][n_rows]) {
    for (std::size_t v = 0; v < n_vectors; ++v)
      for (std::size_t r = 0; r < n_rows; ++r) sums[v][r] = product(rows[r], vectors[v], n);
  }

  static void distances(const float* const (&rows)[4], const float* vector, std::size_t n, float (&sums)[4]) {
    for (std::size_t r = 0; r < 4; ++r) sums[r] = distance(rows[r], vector, n);
  }

  static void widen(const std::uint16_t* halves, std::size_t n, float* to) {
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t sign = (halves[i] & 0x8000u) << 16, rest = halves[i] & 0x7FFFu;
      float value;
      if (rest >= 0x400u && rest < 0x7C00u) {
        const std::uint32_t raw = (rest << 13) + 0x38000000u;
        std::memcpy(&value, &raw, sizeof value);
      } else {  // subnormal; there are no infinities
        value = static_cast<float>(rest) * 0x1p-24f;
      }
      std::uint32_t raw;
      std::memcpy(&raw, &value, sizeof raw);
      raw |= sign;
      std::memcpy(&to[i], &raw, sizeof raw);
    }
  }
};

}  // namespace
}  // namespace posh
