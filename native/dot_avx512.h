// Routing with AVX-512: products of 8-bit numbers in one instruction. Include it between avx512_begin.h and
// avx512_end.h, after block_avx2.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "block_avx2.h"

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

struct Dot512 {
  static inline __attribute__((always_inline)) __m256i add(__m256i sums, __m256i numbers, __m256i others) {
    return _mm256_dpbusd_epi32(sums, numbers, others);
  }
};

// Routes a query to n_groups groups of eight lists. A register has two quads of columns of a group; sums of several
// groups hide the latency of the products.
template <std::size_t n_groups>
inline __attribute__((always_inline)) void route_query(const Router& router, const std::int8_t* numbers, float unit,
                                                       __m256i offset, std::size_t group, float* scores) {
  const std::size_t n_quads = router.n_quads();
  const std::uint8_t* from = router.numbers.data() + group * n_quads * 32;
  const __m512i quad_of_lane = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  __m512i sums[n_groups];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  for (std::size_t j = 0; j + 2 <= n_quads; j += 2) {
    const __m128i two = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(numbers + 4 * j));
    const __m512i query = _mm512_permutexvar_epi32(quad_of_lane, _mm512_castsi128_si512(two));
#pragma GCC unroll 8
    for (std::size_t g = 0; g < n_groups; ++g)
      sums[g] = _mm512_dpbusd_epi32(sums[g], _mm512_loadu_si512(from + (g * n_quads + j) * 32), query);
  }
  std::int32_t last = 0;
  if (n_quads % 2) std::memcpy(&last, numbers + 4 * (n_quads - 1), sizeof last);
#pragma GCC unroll 8
  for (std::size_t g = 0; g < n_groups; ++g) {
    __m256i sum = _mm256_add_epi32(_mm512_castsi512_si256(sums[g]), _mm512_extracti64x4_epi64(sums[g], 1));
    if (n_quads % 2)
      sum = _mm256_dpbusd_epi32(sum, load(from + (g * n_quads + n_quads - 1) * 32), _mm256_set1_epi32(last));
    const std::size_t list = 8 * (group + g);
    const __m256 steps = _mm256_mul_ps(_mm256_loadu_ps(&router.step[list]), _mm256_set1_ps(unit));
    const __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_add_epi32(sum, offset)), steps);
    _mm256_storeu_ps(scores + list, _mm256_add_ps(scaled, _mm256_loadu_ps(&router.bias[list])));
  }
}

inline void route_avx512(const Router& router, const Routed& queries, float* scores) {
  std::size_t i = 0;
  for (; i + 4 <= queries.n; i += 4) BlockAvx2::route_queries<Dot512, 4, 2>(router, queries, i, scores);
  for (; i < queries.n; ++i) {
    const std::int8_t* numbers = queries.numbers + i * queries.stride;
    std::int32_t sum = 0;
    for (std::size_t j = 0; j < router.n_columns; ++j) sum += numbers[j];
    const __m256i offset = _mm256_set1_epi32(-64 * sum);
    float* to = scores + i * 8 * router.n_groups();
    std::size_t group = 0;
    for (; group + 8 <= router.n_groups(); group += 8)
      route_query<8>(router, numbers, queries.units[i], offset, group, to);
    for (; group < router.n_groups(); ++group) route_query<1>(router, numbers, queries.units[i], offset, group, to);
  }
}

}  // namespace
}  // namespace posh
