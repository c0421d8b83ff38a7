// Winner selection with AVX2: eight scores per comparison, only the set bits of its mask are visited.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "kernels.h"

#include "avx2_begin.h"
#include "winners_guess.h"

namespace posh {
namespace {

float horizontal_sum(__m256 v) {
  const __m128 halves = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 pairs = _mm_add_ps(halves, _mm_movehl_ps(halves, halves));
  return _mm_cvtss_f32(_mm_add_ss(pairs, _mm_movehdup_ps(pairs)));
}

struct Avx2 {
  static Moments moments(const float* row, std::size_t n) {
    __m256 sum0 = _mm256_setzero_ps(), sum1 = sum0, squares0 = sum0, squares1 = sum0;
    std::size_t i = 0;
    for (; i + 16 <= n; i += 16) {
      const __m256 a = _mm256_loadu_ps(row + i), b = _mm256_loadu_ps(row + i + 8);
      sum0 = _mm256_add_ps(sum0, a);
      sum1 = _mm256_add_ps(sum1, b);
      squares0 = _mm256_fmadd_ps(a, a, squares0);
      squares1 = _mm256_fmadd_ps(b, b, squares1);
    }
    float total = horizontal_sum(_mm256_add_ps(sum0, sum1));
    float total_squares = horizontal_sum(_mm256_add_ps(squares0, squares1));
    for (; i < n; ++i) {
      total += row[i];
      total_squares += row[i] * row[i];
    }
    const float mean = total / n;
    return {mean, std::sqrt(std::max(0.0f, total_squares / n - mean * mean))};
  }

  static std::size_t above(const float* row, std::size_t n, float threshold, std::uint16_t* bits) {
    const __m256 limit = _mm256_set1_ps(threshold);
    std::size_t found = 0, i = 0;
    for (; i + 32 <= n; i += 32) {
      unsigned mask = 0;
      for (unsigned part = 0; part < 4; ++part) {
        const __m256 passes = _mm256_cmp_ps(_mm256_loadu_ps(row + i + 8 * part), limit, _CMP_GE_OQ);
        mask |= static_cast<unsigned>(_mm256_movemask_ps(passes)) << (8 * part);
      }
      for (; mask; mask &= mask - 1) bits[found++] = static_cast<std::uint16_t>(i + __builtin_ctz(mask));
    }
    for (; i < n; ++i) {
      bits[found] = static_cast<std::uint16_t>(i);
      found += row[i] >= threshold;
    }
    return found;
  }
};

}  // namespace

void winners_avx2(const float* scores, std::size_t n_rows, std::size_t n_bits, std::size_t n_active,
                  std::uint16_t* winners) {
  winners_by_guess<Avx2>(scores, n_rows, n_bits, n_active, winners);
}

}  // namespace posh
#include "avx2_end.h"
#endif
