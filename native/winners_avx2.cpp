// Winner selection with AVX2: compares eight scores at a time and collects the bits that the mask selects.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "kernels.h"
#include "keys.h"

#include "avx2_begin.h"
#include "winners_guess.h"

namespace posh {
namespace {

float horizontal_sum(const __m256 (&parts)[4]) {
  const __m256 v = _mm256_add_ps(_mm256_add_ps(parts[0], parts[1]), _mm256_add_ps(parts[2], parts[3]));
  const __m128 halves = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 pairs = _mm_add_ps(halves, _mm_movehl_ps(halves, halves));
  return _mm_cvtss_f32(_mm_add_ss(pairs, _mm_movehdup_ps(pairs)));
}

// A mask of eight bits: bit i is set if score i reaches the limit.
unsigned mask_reaching(const float* scores, __m256 limit) {
  return static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(scores), limit, _CMP_GE_OQ)));
}

// For each mask of eight bits, the byte shuffle that moves the chosen 16-bit lanes to the front.
struct LeftPack {
  alignas(16) std::uint8_t shuffle[256][16] = {};
  constexpr LeftPack() {
    for (unsigned mask = 0; mask < 256; ++mask)
      for (unsigned lane = 0, to = 0; lane < 8; ++lane)
        if (mask >> lane & 1) {
          shuffle[mask][to++] = static_cast<std::uint8_t>(2 * lane);
          shuffle[mask][to++] = static_cast<std::uint8_t>(2 * lane + 1);
        }
  }
};
constexpr LeftPack left_pack;

// Writes those of eight bit numbers that the mask chooses, and returns the address after the last one. No branch
// depends on the scores, because such a branch could not be predicted.
std::uint16_t* append(std::uint16_t* to, __m128i bits, unsigned mask) {
  const __m128i shuffle = _mm_load_si128(reinterpret_cast<const __m128i*>(left_pack.shuffle[mask]));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_shuffle_epi8(bits, shuffle));
  return to + __builtin_popcount(mask);
}

struct WinnersAvx2 {
  static Moments moments(const float* row, std::size_t n) {
    __m256 sums[4] = {}, squares[4] = {};  // four independent sums hide the latency of an addition
    std::size_t i = 0;
    for (; i + 32 <= n; i += 32)
      for (unsigned part = 0; part < 4; ++part) {
        const __m256 scores = _mm256_loadu_ps(row + i + 8 * part);
        sums[part] = _mm256_add_ps(sums[part], scores);
        squares[part] = _mm256_fmadd_ps(scores, scores, squares[part]);
      }
    float total = horizontal_sum(sums), total_squares = horizontal_sum(squares);
    for (; i < n; ++i) {
      total += row[i];
      total_squares += row[i] * row[i];
    }
    const float mean = total / n;
    return {mean, std::sqrt(std::max(0.0f, total_squares / n - mean * mean))};
  }

  static std::size_t above(const float* row, std::size_t n, float threshold, std::uint16_t* bits) {
    const __m256 limit = _mm256_set1_ps(threshold);
    const __m128i eight = _mm_set1_epi16(8);
    __m128i next = _mm_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7);
    std::uint16_t* end = bits;
    std::size_t i = 0;
    for (; i + 8 <= n; i += 8, next = _mm_add_epi16(next, eight))
      end = append(end, next, mask_reaching(row + i, limit));
    for (; i < n; ++i) {
      *end = static_cast<std::uint16_t>(i);
      end += row[i] >= threshold;
    }
    return static_cast<std::size_t>(end - bits);
  }

  static std::size_t count(const float* scores, std::size_t n, float threshold) {
    const __m256 limit = _mm256_set1_ps(threshold);
    int n_reaching = 0;
    for (std::size_t i = 0; i < n; i += 8) n_reaching += __builtin_popcount(mask_reaching(scores + i, limit));
    return static_cast<std::size_t>(n_reaching);
  }

  static void keep(const float* scores, std::size_t n, float threshold, std::uint16_t* bits) {
    const __m256 limit = _mm256_set1_ps(threshold);
    std::uint16_t* end = bits;
    for (std::size_t i = 0; i < n; i += 8) {
      const __m128i next = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bits + i));
      end = append(end, next, mask_reaching(scores + i, limit));
    }
  }
};

}  // namespace

void winners_avx2(const float* scores, std::size_t n_rows, std::size_t n_bits, std::size_t n_active,
                  std::uint16_t* winners) {
  winners_by_guess<WinnersAvx2>(scores, n_rows, n_bits, n_active, winners);
}

}  // namespace posh
#include "avx2_end.h"
#endif
