// Prepares vectors in double precision, so that their squares fit at any scale.
#include "metric.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "metric_prepare.h"

namespace posh {
namespace {

struct Scalar {
  struct Four {
    double values[4];
    Four operator+(const Four& other) const {
      return combine(other, [](double a, double b) { return a + b; });
    }
    Four operator-(const Four& other) const {
      return combine(other, [](double a, double b) { return a - b; });
    }
    Four operator*(const Four& other) const {
      return combine(other, [](double a, double b) { return a * b; });
    }

    template <class Operation>
    Four combine(const Four& other, Operation operation) const {
      Four result;
      for (std::size_t i = 0; i < 4; ++i) result.values[i] = operation(values[i], other.values[i]);
      return result;
    }
  };

  static Four repeat(double value) { return {{value, value, value, value}}; }
  template <class T>
  static Four load(const T* from) {
    Four four;
    for (std::size_t i = 0; i < 4; ++i) four.values[i] = from[i];
    return four;
  }
  static void store(const Four& four, float* to) {
    for (std::size_t i = 0; i < 4; ++i) to[i] = static_cast<float>(four.values[i]);
  }
};

}  // namespace

bool prepare_documents_scalar(const Metric& metric, const Reals& vectors, float* to) {
  return prepare_documents<Scalar>(metric, vectors, to);
}

bool prepare_queries_scalar(const Metric& metric, const Reals& vectors, float* to, double* factors) {
  return prepare_queries<Scalar>(metric, vectors, to, factors);
}

void scale_scores(const double* factors, std::size_t n, std::size_t k, float* scores) {
  constexpr double largest = std::numeric_limits<float>::max();
  for (std::size_t row = 0; row < n; ++row, scores += k) {
    if (factors[row] == 1.0) continue;
    for (std::size_t i = 0; i < k; ++i)
      if (scores[i] != 0.0f && scores[i] != -std::numeric_limits<float>::infinity())  // a factor may be infinite
        scores[i] = static_cast<float>(std::clamp(static_cast<double>(scores[i]) * factors[row], -largest, largest));
  }
}

}  // namespace posh
