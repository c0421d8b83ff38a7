// Products of 8-bit numbers with AVX-512. Include it between avx512_begin.h and avx512_end.h.
#pragma once

#include <immintrin.h>

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

struct Dot512 {
  static inline __attribute__((always_inline)) __m256i add(__m256i sums, __m256i numbers, __m256i others) {
    return _mm256_dpbusd_epi32(sums, numbers, others);
  }
};

}  // namespace
}  // namespace posh
