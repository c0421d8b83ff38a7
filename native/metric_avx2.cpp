// Preparation of vectors with AVX2.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels.h"
#include "metric.h"

#include "avx2_begin.h"
#include "metric_prepare.h"

namespace posh {
namespace {

struct Avx2 {
  struct Four {
    __m256d values;
    Four operator+(Four other) const { return {_mm256_add_pd(values, other.values)}; }
    Four operator-(Four other) const { return {_mm256_sub_pd(values, other.values)}; }
    Four operator*(Four other) const { return {_mm256_mul_pd(values, other.values)}; }
  };

  static Four repeat(double value) { return {_mm256_set1_pd(value)}; }
  static Four load(const float* from) { return {_mm256_cvtps_pd(_mm_loadu_ps(from))}; }
  static Four load(const double* from) { return {_mm256_loadu_pd(from)}; }
  static void store(Four four, float* to) { _mm_storeu_ps(to, _mm256_cvtpd_ps(four.values)); }
};

}  // namespace

bool prepare_documents_avx2(const Metric& metric, const Reals& vectors, float* to) {
  return prepare_documents<Avx2>(metric, vectors, to);
}

bool prepare_queries_avx2(const Metric& metric, const Reals& vectors, float* to, double* factors) {
  return prepare_queries<Avx2>(metric, vectors, to, factors);
}

}  // namespace posh
#include "avx2_end.h"
#endif
