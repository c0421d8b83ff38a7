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
    route_avx512(router, queries, scores);
  }

  static void masks(const BlockScan& scan, std::uint64_t* masks) { count_planes<Bits512, Bits256>(scan, masks); }

  static std::uint32_t* expand(const std::uint64_t* mask, std::uint32_t first, std::uint32_t* to) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (std::uint32_t w = 0; w < 4; ++w)
      for (std::uint32_t at = 0; at < 64; at += 16) {
        const auto some = static_cast<__mmask16>(mask[w] >> at);
        const __m512i documents = _mm512_add_epi32(lanes, _mm512_set1_epi32(static_cast<int>(first + 64 * w + at)));
        _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(some, documents));
        to += __builtin_popcount(some);
      }
    return to;
  }

  static std::int32_t half_sum(const std::uint8_t* halves, const std::int8_t* numbers, std::size_t width,
                               std::size_t tail) {
    return total_of(sums(halves, numbers, width, tail));
  }

  static inline __attribute__((always_inline)) unsigned above(const std::uint8_t* const (&h)[4],
                                                              const Query* const (&q)[4], const Fit (&fits)[4],
                                                              std::size_t width, std::size_t tail,
                                                              std::int32_t (&totals)[4]) {
    return above_sums(
        four_totals(sums(h[0], q[0]->view.numbers, width, tail), sums(h[1], q[1]->view.numbers, width, tail),
                    sums(h[2], q[2]->view.numbers, width, tail), sums(h[3], q[3]->view.numbers, width, tail)),
        q, fits, totals);
  }

 private:
  // Eight sums that add up to the sum over all columns. The upper four bits of a byte count as 16 times their number,
  // so their sum is divided in the end.
  static inline __attribute__((always_inline)) __m256i sums(const std::uint8_t* halves, const std::int8_t* numbers,
                                                            std::size_t width, std::size_t tail) {
    const __m256i four = _mm256_set1_epi8(15), last = lower_mask(tail), last_upper = _mm256_slli_epi16(last, 4);
    __m256i lower = _mm256_setzero_si256(), upper = _mm256_setzero_si256();
    for (std::size_t j = 0; j + 64 < width; j += 64) {
      const __m256i bytes = load(halves + j / 2);
      lower = _mm256_dpbusd_epi32(lower, _mm256_and_si256(bytes, four), load(numbers + j));
      upper = _mm256_dpbusd_epi32(upper, _mm256_andnot_si256(four, bytes), load(numbers + j + 32));
    }
    const __m256i bytes = load(halves + (width - 64) / 2);
    numbers += width - 64;
    lower = _mm256_dpbusd_epi32(lower, _mm256_and_si256(bytes, last), load(numbers));
    upper = _mm256_dpbusd_epi32(upper, _mm256_and_si256(bytes, last_upper), load(numbers + tail));
    return _mm256_add_epi32(lower, _mm256_srai_epi32(upper, 4));
  }
};

}  // namespace

bool search_blocks_avx512(const BlockSearch& search, std::int64_t* ids, float* scores) {
  return search_blocks<BlockAvx512>(search, ids, scores);
}
bool search_radius_avx512(const BlockSearch& search, std::vector<std::uint64_t>* found) {
  return search_radius<BlockAvx512>(search, found);
}

}  // namespace posh
#include "avx512_end.h"
#endif
