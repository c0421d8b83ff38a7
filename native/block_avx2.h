// The primitives of the search in blocks with AVX2: see block_search.h. Include it between avx2_begin.h and avx2_end.h,
// or between the headers of an instruction set that has AVX2.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "block_adder.h"
#include "block_state.h"
#include "kernels.h"
#include "projection.h"

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

struct Bits256 {
  static constexpr std::size_t n_groups = 1;
  __m256i bits;
  static Bits256 load(const std::uint8_t* bytes) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes))};
  }
  static Bits256 all(bool bit) { return {_mm256_set1_epi32(-static_cast<int>(bit))}; }
  static Bits256 bit_of(const std::uint32_t* starts, int bit) { return all(*starts >> bit & 1); }
  void store(std::uint64_t* to) const { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bits); }
  Bits256 operator&(Bits256 other) const { return {_mm256_and_si256(bits, other.bits)}; }
  Bits256 operator|(Bits256 other) const { return {_mm256_or_si256(bits, other.bits)}; }
  Bits256 operator^(Bits256 other) const { return {_mm256_xor_si256(bits, other.bits)}; }
};

__m256i load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }

alignas(64) constexpr std::uint8_t lower_bits[64] = {15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15,
                                                     15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15};

// 15 in the first n of 32 bytes.
inline __attribute__((always_inline)) __m256i lower_mask(std::size_t n) { return load(lower_bits + 32 - n); }

// Sums of pairs of halves times numbers, of 2 * n columns in n bytes. `mask` is lower_mask(n).
inline __attribute__((always_inline)) __m256i half_products(__m256i halves, const std::int8_t* numbers, std::size_t n,
                                                            __m256i mask) {
  return _mm256_add_epi16(
      _mm256_maddubs_epi16(_mm256_and_si256(halves, mask), load(numbers)),
      _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(halves, 4), mask), load(numbers + n)));
}

// Eight sums that add up to the sum over all columns. 16-bit sums of 256 columns cannot overflow: 8 * 15 * 127 < 2^15.
inline __attribute__((always_inline)) __m256i half_sums(const std::uint8_t* halves, const std::int8_t* numbers,
                                                        std::size_t width, std::size_t tail) {
  const __m256i ones = _mm256_set1_epi16(1), four = _mm256_set1_epi8(15), last = lower_mask(tail);
  __m256i total = _mm256_setzero_si256();
  for (std::size_t at = 0; at < width; at += 256) {
    __m256i sums = _mm256_setzero_si256();
    const std::size_t end = std::min(width, at + 256);
    for (std::size_t j = at; j < end; j += 64) {
      const bool is_last = j + 64 == width;
      sums = _mm256_add_epi16(
          sums, half_products(load(halves + j / 2), numbers + j, is_last ? tail : 32, is_last ? last : four));
    }
    total = _mm256_add_epi32(total, _mm256_madd_epi16(sums, ones));
  }
  return total;
}

inline __attribute__((always_inline)) __m128i four_totals(__m256i a, __m256i b, __m256i c, __m256i d) {
  const __m256i sums = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
  return _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
}

float float_total(__m256 lanes) {  // in the order of eight_sums
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Adds products of unsigned and signed 8-bit numbers to eight sums, four products to each. The unsigned ones are below
// 128.
struct Dot256 {
  static inline __attribute__((always_inline)) __m256i add(__m256i sums, __m256i numbers, __m256i others) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_maddubs_epi16(numbers, others), _mm256_set1_epi16(1)));
  }
};

struct BlockAvx2 {
  static constexpr WinnersFn winners = winners_avx2;

  static void route(const Router& router, const Routed& queries, float* scores) {
    route_by<Dot256>(router, queries, scores);
  }

  static std::size_t largest(const float* scores, std::size_t n) {
    __m256 best = _mm256_set1_ps(lowest);
    std::size_t i = 0;
    for (; i + 8 <= n; i += 8) best = _mm256_max_ps(best, _mm256_loadu_ps(scores + i));
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(best), _mm256_extractf128_ps(best, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    float highest = _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
    for (; i < n; ++i) highest = std::max(highest, scores[i]);
    for (i = 0; i + 8 <= n; i += 8) {
      const int equal =
          _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(scores + i), _mm256_set1_ps(highest), _CMP_EQ_OQ));
      if (equal) return i + static_cast<std::size_t>(__builtin_ctz(static_cast<unsigned>(equal)));
    }
    while (i + 1 < n && scores[i] != highest) ++i;
    return i;
  }

  static void masks(const BlockScan& scan, std::uint64_t* masks) { count_planes<Bits256>(scan, masks); }

  // Most words have at most four bits: these are written without a branch, which could not be predicted.
  static std::uint32_t* expand(const std::uint64_t* mask, std::uint32_t first, std::uint32_t* to) {
    for (std::uint32_t w = 0; w < 4; ++w) {
      std::uint64_t bits = mask[w];
      const std::uint32_t start = first + 64 * w;
      const int n = __builtin_popcountll(bits);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i, bits = _blsr_u64(bits)) to[i] = start + static_cast<std::uint32_t>(_tzcnt_u64(bits));
      for (std::uint32_t* further = to + 4; __builtin_expect(bits != 0, 0); bits = _blsr_u64(bits))
        *further++ = start + static_cast<std::uint32_t>(_tzcnt_u64(bits));
      to += n;
    }
    return to;
  }

  static std::int32_t half_sum(const std::uint8_t* halves, const std::int8_t* numbers, std::size_t width,
                               std::size_t tail) {
    return total_of(half_sums(halves, numbers, width, tail));
  }

  static inline __attribute__((always_inline)) std::int32_t total_of(__m256i sums) {
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 1)));
  }

  static inline __attribute__((always_inline)) unsigned above(const std::uint8_t* const (&h)[4],
                                                              const Query* const (&q)[4], const Fit (&fits)[4],
                                                              std::size_t width, std::size_t tail,
                                                              std::int32_t (&sums)[4]) {
    return above_sums(
        four_totals(half_sums(h[0], q[0]->view.numbers, width, tail), half_sums(h[1], q[1]->view.numbers, width, tail),
                    half_sums(h[2], q[2]->view.numbers, width, tail), half_sums(h[3], q[3]->view.numbers, width, tail)),
        q, fits, sums);
  }

  // Returns which of four documents may be good enough, from the sums over their high halves.
  static inline __attribute__((always_inline)) unsigned above_sums(__m128i totals, const Query* const (&q)[4],
                                                                   const Fit (&fits)[4], std::int32_t (&sums)[4]) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(sums), totals);
    const auto field = [&](float View::* f) {
      return _mm_setr_ps(q[0]->view.*f, q[1]->view.*f, q[2]->view.*f, q[3]->view.*f);
    };
    const __m128 entries = _mm_setr_ps(q[0]->entry, q[1]->entry, q[2]->entry, q[3]->entry);
    const __m128 products = _mm_add_ps(_mm_cvtepi32_ps(_mm_slli_epi32(totals, 4)), field(&View::half_offset));
    const __m128 scales = _mm_setr_ps(fits[0].scale, fits[1].scale, fits[2].scale, fits[3].scale);
    const __m128 offsets = _mm_setr_ps(fits[0].offset, fits[1].offset, fits[2].offset, fits[3].offset);
    const __m128 scores = _mm_add_ps(_mm_mul_ps(products, _mm_mul_ps(scales, field(&View::unit))),
                                     _mm_add_ps(offsets, field(&View::list_score)));
    return static_cast<unsigned>(_mm_movemask_ps(_mm_cmpge_ps(scores, entries)));
  }

  // Computes the first three stages in a register of eight numbers: each number plus or minus its partner. a - b is -b
  // + a.
  static void hadamard(float* values, std::size_t n) {
    if (n < 8) return hadamard_from(1, values, n);
    const __m256 minus1 = _mm256_setr_ps(0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f);
    const __m256 minus2 = _mm256_setr_ps(0.0f, 0.0f, -0.0f, -0.0f, 0.0f, 0.0f, -0.0f, -0.0f);
    const __m256 minus4 = _mm256_setr_ps(0.0f, 0.0f, 0.0f, 0.0f, -0.0f, -0.0f, -0.0f, -0.0f);
    for (std::size_t i = 0; i < n; i += 8) {
      __m256 v = _mm256_loadu_ps(values + i);
      v = _mm256_add_ps(_mm256_permute_ps(v, 0xB1), _mm256_xor_ps(v, minus1));
      v = _mm256_add_ps(_mm256_permute_ps(v, 0x4E), _mm256_xor_ps(v, minus2));
      v = _mm256_add_ps(_mm256_permute2f128_ps(v, v, 1), _mm256_xor_ps(v, minus4));
      _mm256_storeu_ps(values + i, v);
    }
    hadamard_from(8, values, n);
  }

  static float product(const float* a, const float* b, std::size_t n) {
    float sums[1][1];
    products<1, 1>({a}, {b}, n, sums);
    return sums[0][0];
  }

  static float distance(const float* a, const float* b, std::size_t n) {
    float sums[1][1];
    add_up<1, 1>({a}, {b}, n, sums, squared_difference);
    return sums[0][0];
  }

  template <std::size_t n_rows, std::size_t n_vectors>
  static void products(const float* const (&rows)[n_rows], const float* const (&vectors)[n_vectors], std::size_t n,
                       float (&sums)[n_vectors][n_rows]) {
    add_up(rows, vectors, n, sums, [](__m256 a, __m256 b) { return _mm256_mul_ps(a, b); });
  }

  static void distances(const float* const (&rows)[4], const float* vector, std::size_t n, float (&sums)[4]) {
    float all[1][4];
    add_up<4, 1>(rows, {vector}, n, all, squared_difference);
    std::copy_n(all[0], 4, sums);
  }

  static void widen(const std::uint16_t* halves, std::size_t n, float* to) {
    std::size_t i = 0;
    for (; i + 8 <= n; i += 8)
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves + i))));
    for (; i < n; ++i) to[i] = _cvtsh_ss(halves[i]);
  }

 protected:
  static inline __attribute__((always_inline)) __m256 squared_difference(__m256 a, __m256 b) {
    const __m256 difference = _mm256_sub_ps(a, b);
    return _mm256_mul_ps(difference, difference);
  }

  // Sums term(row, vector) over all columns. Several sums take little longer than one: additions of different sums
  // overlap, and each number is loaded once for all of them.
  template <std::size_t n_rows, std::size_t n_vectors, class Term>
  static inline __attribute__((always_inline)) void add_up(const float* const (&rows)[n_rows],
                                                           const float* const (&vectors)[n_vectors], std::size_t n,
                                                           float (&to)[n_vectors][n_rows], Term term) {
    __m256 sums[n_vectors][n_rows];
    for (auto& row_sums : sums)
      for (__m256& sum : row_sums) sum = _mm256_setzero_ps();
    const auto add = [&](auto numbers) __attribute__((always_inline)) {
      __m256 row[n_rows];
#pragma GCC unroll 4
      for (std::size_t r = 0; r < n_rows; ++r) row[r] = numbers(rows[r]);
#pragma GCC unroll 4
      for (std::size_t v = 0; v < n_vectors; ++v) {
        const __m256 vector = numbers(vectors[v]);
#pragma GCC unroll 4
        for (std::size_t r = 0; r < n_rows; ++r) sums[v][r] = _mm256_add_ps(sums[v][r], term(row[r], vector));
      }
    };
    std::size_t i = 0;
    for (; i + 8 <= n; i += 8) add([&](const float* from) { return _mm256_loadu_ps(from + i); });
    if (i < n) add([&](const float* from) { return rest(from + i, n - i); });
    for (std::size_t v = 0; v < n_vectors; ++v)
      for (std::size_t r = 0; r < n_rows; ++r) to[v][r] = float_total(sums[v][r]);
  }

 public:
  // Routes four queries together: each number of a centroid is loaded once for all of them.
  template <class Dot>
  static void route_by(const Router& router, const Routed& queries, float* scores) {
    std::size_t i = 0;
    for (; i + 4 <= queries.n; i += 4) route_queries<Dot, 4, 2>(router, queries, i, scores);
    for (; i < queries.n; ++i) route_queries<Dot, 1, 4>(router, queries, i, scores);
  }

  // Routes n_queries queries, n_at_once groups at a time.
  template <class Dot, std::size_t n_queries, std::size_t n_at_once>
  static void route_queries(const Router& router, const Routed& queries, std::size_t first, float* scores) {
    __m256i offsets[n_queries];
    for (std::size_t q = 0; q < n_queries; ++q) {
      const std::int8_t* numbers = queries.numbers + (first + q) * queries.stride;
      std::int32_t sum = 0;
      for (std::size_t j = 0; j < router.n_columns; ++j) sum += numbers[j];
      offsets[q] = _mm256_set1_epi32(-64 * sum);
    }
    std::size_t group = 0;
    for (; group + n_at_once <= router.n_groups(); group += n_at_once)
      route_groups<Dot, n_queries, n_at_once>(router, queries, first, offsets, group, scores);
    for (; group < router.n_groups(); ++group)
      route_groups<Dot, n_queries, 1>(router, queries, first, offsets, group, scores);
  }

  template <class Dot, std::size_t n_queries, std::size_t n_groups>
  static inline __attribute__((always_inline)) void route_groups(const Router& router, const Routed& queries,
                                                                 std::size_t first, const __m256i* offsets,
                                                                 std::size_t group, float* scores) {
    const std::size_t n_quads = router.n_quads();
    const std::uint8_t* from = router.numbers.data() + group * n_quads * 32;
    const std::int8_t* numbers = queries.numbers + first * queries.stride;
    __m256i sums[n_queries][n_groups];
    for (std::size_t q = 0; q < n_queries; ++q)
      for (std::size_t g = 0; g < n_groups; ++g) sums[q][g] = offsets[q];
    for (std::size_t j = 0; j < n_quads; ++j) {
      __m256i centroids[n_groups];
#pragma GCC unroll 4
      for (std::size_t g = 0; g < n_groups; ++g) centroids[g] = load(from + (g * n_quads + j) * 32);
#pragma GCC unroll 4
      for (std::size_t q = 0; q < n_queries; ++q) {
        std::int32_t four;
        std::memcpy(&four, numbers + q * queries.stride + 4 * j, sizeof four);
        const __m256i query = _mm256_set1_epi32(four);
#pragma GCC unroll 4
        for (std::size_t g = 0; g < n_groups; ++g) sums[q][g] = Dot::add(sums[q][g], centroids[g], query);
      }
    }
    for (std::size_t q = 0; q < n_queries; ++q)
      for (std::size_t g = 0; g < n_groups; ++g) {
        const std::size_t list = 8 * (group + g);
        const __m256 units = _mm256_set1_ps(queries.units[first + q]);
        const __m256 steps = _mm256_mul_ps(_mm256_loadu_ps(&router.step[list]), units);
        const __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[q][g]), steps);
        _mm256_storeu_ps(scores + (first + q) * 8 * router.n_groups() + list,
                         _mm256_add_ps(scaled, _mm256_loadu_ps(&router.bias[list])));
      }
  }

 protected:
  static __m256 rest(const float* from, std::size_t n) {  // n < 8 numbers, then zeros
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(from, _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lanes));
  }
};

}  // namespace
}  // namespace posh
