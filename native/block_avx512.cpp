// The search in blocks with AVX-512: adders of three operands, products of 8-bit numbers in one instruction, and
// documents of a mask without a loop.
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
#include "kernels.h"
#include "keys.h"

#include "avx512_begin.h"
#include "projection.h"
#include "block_search.h"
#include "block_adder.h"
#include "block_avx2.h"
#include "dot_avx512.h"

namespace posh {
namespace {

// Truth tables of three bits for _mm512_ternarylogic_epi64.
constexpr int sum_of_three = 0x96, carry_of_three = 0xE8, carry_of_complements = 0x71;

// Two groups.
struct Bits512 {
  static constexpr std::size_t n_groups = 2;
  __m512i bits;
  static Bits512 load(const std::uint8_t* bytes) { return {_mm512_loadu_si512(bytes)}; }
  static Bits512 all(bool bit) { return {_mm512_set1_epi32(-static_cast<int>(bit))}; }
  static Bits512 bit_of(const std::uint32_t* starts, int bit) {
    const __m256i first = _mm256_set1_epi32(static_cast<int>(starts[0])),
                  second = _mm256_set1_epi32(static_cast<int>(starts[1]));
    const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
    return {_mm512_srai_epi32(_mm512_slli_epi32(both, static_cast<unsigned>(31 - bit)), 31)};
  }
  void store(std::uint64_t* to) const { _mm512_storeu_si512(to, bits); }
  Bits512 operator&(Bits512 other) const { return {_mm512_and_si512(bits, other.bits)}; }
  Bits512 operator^(Bits512 other) const { return {_mm512_xor_si512(bits, other.bits)}; }
};

inline __attribute__((always_inline)) Bits512 add(Bits512& ones, Bits512 a, Bits512 b) {
  const __m512i carries = _mm512_ternarylogic_epi64(ones.bits, a.bits, b.bits, carry_of_three);
  ones.bits = _mm512_ternarylogic_epi64(ones.bits, a.bits, b.bits, sum_of_three);
  return {carries};
}

inline __attribute__((always_inline)) Bits512 add_complements(Bits512& ones, Bits512 a, Bits512 b) {
  const __m512i carries = _mm512_ternarylogic_epi64(ones.bits, a.bits, b.bits, carry_of_complements);
  ones.bits = _mm512_ternarylogic_epi64(ones.bits, a.bits, b.bits, sum_of_three);
  return {carries};
}

struct BlockAvx512 : BlockAvx2 {
  static void route(const Router& router, const Routed& queries, float* scores) {
    route_by<Dot512>(router, queries, scores);
  }

  static void masks(const BlockScan& scan, std::uint64_t* masks) { count_planes<Bits512, Bits256>(scan, masks); }

  static std::uint32_t* expand(const std::uint64_t* mask, std::uint32_t first, std::uint32_t* to) {
    const __m512i numbers = _mm512_load_si512(positions);
    for (std::uint32_t w = 0; w < 4; ++w) {
      const __m512i start = _mm512_set1_epi32(static_cast<int>(first + 64 * w));
      __m512i bytes = _mm512_maskz_compress_epi8(mask[w], numbers);
      const int n = __builtin_popcountll(mask[w]);
      for (int i = 0;;) {
        _mm512_storeu_si512(to + i, _mm512_add_epi32(start, _mm512_cvtepu8_epi32(_mm512_castsi512_si128(bytes))));
        if (__builtin_expect((i += 16) >= n, 1)) break;
        bytes = _mm512_alignr_epi64(_mm512_setzero_si512(), bytes, 2);
      }
      to += n;
    }
    return to;
  }

  static std::int32_t half_sum(const std::uint8_t* halves, const std::int8_t* numbers, std::size_t width) {
    return total_of(sums(halves, numbers, width));
  }

  static inline __attribute__((always_inline)) unsigned above(const std::uint8_t* const (&h)[4],
                                                              const Query* const (&q)[4], const Fit (&fits)[4],
                                                              std::size_t width, std::int32_t (&totals)[4]) {
    return above_sums(four_totals(sums(h[0], q[0]->view.numbers, width), sums(h[1], q[1]->view.numbers, width),
                                  sums(h[2], q[2]->view.numbers, width), sums(h[3], q[3]->view.numbers, width)),
                      q, fits, totals);
  }

 private:
  // Eight sums that add up to the sum over all columns. The upper four bits of a byte count as 16 times their number,
  // so their sum is divided in the end.
  static inline __attribute__((always_inline)) __m256i sums(const std::uint8_t* halves, const std::int8_t* numbers,
                                                            std::size_t width) {
    const __m256i four = _mm256_set1_epi8(15);
    __m256i lower = _mm256_setzero_si256(), upper = _mm256_setzero_si256();
    for (std::size_t j = 0; j < width; j += 64) {
      const __m256i bytes = load(halves + j / 2);
      lower = _mm256_dpbusd_epi32(lower, _mm256_and_si256(bytes, four), load(numbers + j));
      upper = _mm256_dpbusd_epi32(upper, _mm256_andnot_si256(four, bytes), load(numbers + j + 32));
    }
    return _mm256_add_epi32(lower, _mm256_srai_epi32(upper, 4));
  }

  alignas(64) static constexpr std::uint8_t positions[64] = {
      0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
      22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
      44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
};

}  // namespace

bool search_blocks_avx512(const BlockSearch& search, std::int64_t* ids, float* scores) {
  return search_blocks<BlockAvx512>(search, ids, scores);
}

}  // namespace posh
#include "avx512_end.h"
#endif
