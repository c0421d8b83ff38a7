// The search in a graph with AVX-512: products of 8-bit numbers in one instruction, and 16 distances at once.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>
#include <vector>

#include "blocks.h"
#include "graph.h"
#include "kernels.h"
#include "keys.h"

#include "avx512_begin.h"
#include "dot_avx512.h"
#include "graph_avx2.h"
#include "graph_build.h"
#include "graph_search.h"

namespace posh {
namespace {

struct GraphAvx512 : GraphAvx2 {
  static void route(const Router& router, const Routed& queries, float* scores) {
    route_avx512(router, queries, scores);
  }

  static std::size_t largest(const float* scores, std::size_t n) {
    if (n % 64) return GraphAvx2::largest(scores, n);
    __m512 best = _mm512_loadu_ps(scores);
    for (std::size_t i = 16; i < n; i += 16) best = _mm512_max_ps(best, _mm512_loadu_ps(scores + i));
    best = _mm512_set1_ps(_mm512_reduce_max_ps(best));
    for (std::size_t i = 0;; i += 16) {
      const unsigned equal = _mm512_cmp_ps_mask(_mm512_loadu_ps(scores + i), best, _CMP_EQ_OQ);
      if (equal) return i + static_cast<std::size_t>(__builtin_ctz(equal));
    }
  }

  // The instruction takes one unsigned factor: a + 128.
  static std::int32_t dot(const std::int8_t* a, const std::int8_t* b, std::size_t n, std::int32_t b_sum) {
    const __m512i offset = _mm512_set1_epi8(static_cast<char>(0x80));
    __m512i sums = _mm512_setzero_si512();
    for (std::size_t j = 0; j < n; j += 64)
      sums = _mm512_dpbusd_epi32(sums, _mm512_xor_si512(_mm512_loadu_si512(a + j), offset), _mm512_loadu_si512(b + j));
    return _mm512_reduce_add_epi32(sums) - 128 * b_sum;
  }

  static void add_codes(const std::uint8_t* codes, const std::uint8_t* tables, std::size_t n_rows,
                        std::uint16_t* sums) {
    const __m512i four = _mm512_set1_epi8(15);
    __m512i low = _mm512_setzero_si512(), low_odd = low, high = low, high_odd = low;
    for (std::size_t row = 0; row < n_rows; row += 4, codes += 64, tables += 64) {
      const __m512i both = _mm512_loadu_si512(codes), table = _mm512_loadu_si512(tables);
      const __m512i first = _mm512_shuffle_epi8(table, _mm512_and_si512(both, four));
      const __m512i second = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(both, 4), four));
      low = _mm512_add_epi16(low, first);
      low_odd = _mm512_add_epi16(low_odd, _mm512_srli_epi16(first, 8));
      high = _mm512_add_epi16(high, second);
      high_odd = _mm512_add_epi16(high_odd, _mm512_srli_epi16(second, 8));
    }
    store_sums(fold(low), fold(low_odd), sums);
    store_sums(fold(high), fold(high_odd), sums + 16);
  }

  static std::uint32_t estimate(const Group& group, const Product& product, float bound, float* estimates) {
    std::uint32_t near = 0;
    for (std::size_t i = 0; i < graph_group; i += 16) {
      const __m512i sums = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(group.sums + i)));
      const __m512 along = scaled(_mm512_cvtepi32_ps(sums), product.scale, product.offset);
      const __m512 add = scaled(widen_bytes(group.adds + i), group.add_step, group.add_low);
      const __m512 factor = scaled(widen_bytes(group.factors + i), group.factor_step, group.factor_low);
      const __m512 estimate = _mm512_add_ps(_mm512_mul_ps(along, factor), add);
      _mm512_storeu_ps(estimates + i, estimate);
      near |= static_cast<std::uint32_t>(_mm512_cmp_ps_mask(estimate, _mm512_set1_ps(bound), _CMP_LT_OQ)) << i;
    }
    return near;
  }

 private:
  static __m512 scaled(__m512 values, float scale, float offset) {
    return _mm512_add_ps(_mm512_mul_ps(values, _mm512_set1_ps(scale)), _mm512_set1_ps(offset));
  }
  static __m512 widen_bytes(const std::uint8_t* bytes) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes))));
  }
  static __m128i fold(__m512i sums) {
    const __m256i half = _mm256_add_epi16(_mm512_castsi512_si256(sums), _mm512_extracti64x4_epi64(sums, 1));
    return _mm_add_epi16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  }
};

}  // namespace

bool search_graph_avx512(const GraphSearch& search, std::int64_t* ids, float* scores) {
  return search_graph<GraphAvx512>(search, ids, scores);
}
bool build_graph_avx512(const GraphPlan& plan, std::uint8_t* records) {
  return build_graph<GraphAvx512>(plan, records);
}

}  // namespace posh
#include "avx512_end.h"
#endif
