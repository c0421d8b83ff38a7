// One bit of each of 256 documents in one vector, for overlap_scan.h. Include <immintrin.h> before the region for AVX2:
// see avx2_begin.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

struct DocsAvx2 {
  static constexpr std::size_t n_words = 4;
  __m256i bits;

  static DocsAvx2 none() { return {_mm256_setzero_si256()}; }
  static DocsAvx2 all() { return {_mm256_set1_epi8(-1)}; }
  static DocsAvx2 load(const std::uint64_t* words) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(words))};
  }
  void store(std::uint64_t* words) const { _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), bits); }
  bool any() const { return !_mm256_testz_si256(bits, bits); }
  std::size_t count() const {
    return __builtin_popcountll(_mm256_extract_epi64(bits, 0)) + __builtin_popcountll(_mm256_extract_epi64(bits, 1)) +
           __builtin_popcountll(_mm256_extract_epi64(bits, 2)) + __builtin_popcountll(_mm256_extract_epi64(bits, 3));
  }
  DocsAvx2 operator&(DocsAvx2 other) const { return {_mm256_and_si256(bits, other.bits)}; }
  DocsAvx2 operator|(DocsAvx2 other) const { return {_mm256_or_si256(bits, other.bits)}; }
  DocsAvx2 operator^(DocsAvx2 other) const { return {_mm256_xor_si256(bits, other.bits)}; }
};

}  // namespace
}  // namespace posh
