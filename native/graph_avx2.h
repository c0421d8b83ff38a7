// The primitives of the search in a graph with AVX2: see graph_search.h. Include it between avx2_begin.h and
// avx2_end.h, or between the headers of an instruction set that has AVX2.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "block_avx2.h"
#include "graph_search.h"

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

// Four columns of steps, each repeated 16 times: entry e of a table takes those whose bit of e is set.
inline __m256i bit_mask(int bit) {
  const __m256i entries = _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,  //
                                           0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m256i own = _mm256_set1_epi8(static_cast<char>(1 << bit));
  return _mm256_cmpeq_epi8(_mm256_and_si256(entries, own), own);
}

struct GraphAvx2 : BlockAvx2 {
  // |a| * (b with the sign of a): sums of two products fit into 16 bits.
  static std::int32_t dot(const std::int8_t* a, const std::int8_t* b, std::size_t n, std::int32_t) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sums = _mm256_setzero_si256();
    for (std::size_t j = 0; j < n; j += 32) {
      const __m256i x = load(a + j), y = load(b + j);
      const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(x), _mm256_sign_epi8(y, x));
      sums = _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, ones));
    }
    return total_of(sums);
  }

  static void fill_tables(const std::int8_t* steps, std::size_t n, std::uint8_t* tables) {
    const __m256i bits[4] = {bit_mask(0), bit_mask(1), bit_mask(2), bit_mask(3)};
    const __m256i zero = _mm256_setzero_si256();
    for (std::size_t at = 0; at < n; at += 8, tables += 32) {  // two tables
      std::int32_t first, second;
      std::memcpy(&first, steps + at, sizeof first);
      std::memcpy(&second, steps + at + 4, sizeof second);
      const __m256i both = _mm256_setr_m128i(_mm_set1_epi32(first), _mm_set1_epi32(second));
      __m256i sums = zero;
      for (int i = 0; i < 4; ++i) {
        const __m256i step = _mm256_shuffle_epi8(both, _mm256_set1_epi8(static_cast<char>(i)));
        sums = _mm256_add_epi8(sums, _mm256_and_si256(step, bits[i]));
        sums = _mm256_sub_epi8(sums, _mm256_min_epi8(step, zero));
      }
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(tables), sums);
    }
  }

  // Sums of bytes at even and odd places are kept apart: those at odd places overflow into nothing.
  static void add_codes(const std::uint8_t* codes, const std::uint8_t* tables, std::size_t n_rows,
                        std::uint16_t* sums) {
    const __m256i four = _mm256_set1_epi8(15);
    __m256i low = _mm256_setzero_si256(), low_odd = low, high = low, high_odd = low;
    for (std::size_t row = 0; row < n_rows; row += 2, codes += 32, tables += 32) {
      const __m256i both = load(codes), table = load(tables);
      const __m256i first = _mm256_shuffle_epi8(table, _mm256_and_si256(both, four));
      const __m256i second = _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(both, 4), four));
      low = _mm256_add_epi16(low, first);
      low_odd = _mm256_add_epi16(low_odd, _mm256_srli_epi16(first, 8));
      high = _mm256_add_epi16(high, second);
      high_odd = _mm256_add_epi16(high_odd, _mm256_srli_epi16(second, 8));
    }
    store_sums(fold(low), fold(low_odd), sums);
    store_sums(fold(high), fold(high_odd), sums + 16);
  }

  static std::uint32_t estimate(const Group& group, const Product& product, float bound, float* estimates) {
    std::uint32_t near = 0;
    for (std::size_t i = 0; i < graph_group; i += 8) {
      const __m128i sums = _mm_loadu_si128(reinterpret_cast<const __m128i*>(group.sums + i));
      const __m256 along = scaled(_mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(sums)), product.scale, product.offset);
      const __m256 add = scaled(widen_bytes(group.adds + i), group.add_step, group.add_low);
      const __m256 factor = scaled(widen_bytes(group.factors + i), group.factor_step, group.factor_low);
      const __m256 estimate = _mm256_add_ps(_mm256_mul_ps(along, factor), add);
      _mm256_storeu_ps(estimates + i, estimate);
      const int below = _mm256_movemask_ps(_mm256_cmp_ps(estimate, _mm256_set1_ps(bound), _CMP_LT_OQ));
      near |= static_cast<std::uint32_t>(below) << i;
    }
    return near;
  }

 private:
  static __m256 scaled(__m256 values, float scale, float offset) {
    return _mm256_add_ps(_mm256_mul_ps(values, _mm256_set1_ps(scale)), _mm256_set1_ps(offset));
  }
  static __m256 widen_bytes(const std::uint8_t* bytes) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes))));
  }
  static __m128i fold(__m256i sums) {
    return _mm_add_epi16(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  }

 protected:
  // Writes 16 sums: `all` has those at even places plus 256 times those at odd places, modulo 2^16.
  static void store_sums(__m128i all, __m128i odd, std::uint16_t* sums) {
    const __m128i even = _mm_sub_epi16(all, _mm_slli_epi16(odd, 8));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(sums), _mm_unpacklo_epi16(even, odd));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(sums + 8), _mm_unpackhi_epi16(even, odd));
  }
};

}  // namespace
}  // namespace posh
