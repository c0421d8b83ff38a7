// Prepares vectors in double precision, so that their squares fit at any scale.
#include "metric.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace posh {
namespace {

struct Length {
  double value;  // not finite if any number of the vector is not finite
  int exponent;  // the length is value * 2^exponent
};

template <class T>
Length length_of(const T* vector, std::size_t d) {
  double squares = 0;
  for (std::size_t i = 0; i < d; ++i) squares += static_cast<double>(vector[i]) * static_cast<double>(vector[i]);
  if (squares > 1e-200 && squares < 1e200) return {std::sqrt(squares), 0};
  if (std::isnan(squares)) return {squares, 0};
  double largest = 0;  // reached only by doubles of extreme scale and by zero vectors
  for (std::size_t i = 0; i < d; ++i) largest = std::max(largest, std::fabs(static_cast<double>(vector[i])));
  if (largest == 0 || std::isinf(largest)) return {largest, 0};
  int exponent = 0;
  std::frexp(largest, &exponent);
  squares = 0;
  for (std::size_t i = 0; i < d; ++i) {
    const double value = std::ldexp(static_cast<double>(vector[i]), -exponent);
    squares += value * value;
  }
  return {std::sqrt(squares), exponent};
}

// Writes a vector with unit length; returns whether all numbers are finite.
template <class T>
bool write_direction(const T* vector, std::size_t d, float* to) {
  const Length length = length_of(vector, d);
  if (length.value == 0)
    std::fill(to, to + d, 0.0f);
  else if (length.exponent)
    for (std::size_t i = 0; i < d; ++i)
      to[i] = static_cast<float>(std::ldexp(static_cast<double>(vector[i]), -length.exponent) / length.value);
  else
    for (std::size_t i = 0; i < d; ++i) to[i] = static_cast<float>(static_cast<double>(vector[i]) / length.value);
  return std::isfinite(length.value);
}

// Writes a vector divided by the power of two above its length, and returns that power: all digits are kept, so that
// products that are equal stay equal. The power is not finite if any number of the vector is not finite.
template <class T>
double write_scaled(const T* vector, std::size_t d, float* to) {
  const Length length = length_of(vector, d);
  if (length.value == 0 || !std::isfinite(length.value)) {
    std::fill(to, to + d, 0.0f);
    return length.value;
  }
  int exponent = 0;
  std::frexp(length.value, &exponent);
  exponent += length.exponent;
  if (length.exponent)
    for (std::size_t i = 0; i < d; ++i)
      to[i] = static_cast<float>(std::ldexp(static_cast<double>(vector[i]), -exponent));
  else {
    const double factor = std::ldexp(1.0, -exponent);
    for (std::size_t i = 0; i < d; ++i) to[i] = static_cast<float>(static_cast<double>(vector[i]) * factor);
  }
  return std::ldexp(1.0, exponent);
}

// Writes (vector - mean) * factor; returns whether the squares of all numbers, and the sum of many, fit into float.
template <class T>
bool write_difference(const Metric& metric, const T* vector, double factor, float* to) {
  const std::size_t d = metric.mean.size();
  const double* mean = metric.mean.data();
  std::int32_t n_unfit = 0;
  for (std::size_t i = 0; i < d; ++i) {
    to[i] = static_cast<float>((static_cast<double>(vector[i]) - mean[i]) * factor);
    std::uint32_t bits;
    std::memcpy(&bits, to + i, sizeof bits);
    constexpr std::uint32_t exponent = 0x7F800000u, too_large = (127u + 56u) << 23;  // 2^56, infinities and NaN
    n_unfit += (bits & exponent) >= too_large;
  }
  return n_unfit == 0;
}

}  // namespace

template <class T>
bool prepare_documents(const Metric& metric, const T* vectors, std::size_t n, float* to) {
  const std::size_t d = metric.mean.size();
  const double factor = 1.0 / metric.unit;
  bool fits = true;
  for (std::size_t row = 0; row < n; ++row, vectors += d, to += d) {
    if (metric.kind == Metric::Kind::cosine)
      write_direction(vectors, d, to);
    else
      fits &= write_difference(metric, vectors, factor, to);
  }
  return fits;
}

template <class T>
bool prepare_queries(const Metric& metric, const T* vectors, std::size_t n, float* to, double* factors) {
  const std::size_t d = metric.mean.size();
  const double factor = 1.0 / metric.unit;
  bool fits = true;
  for (std::size_t row = 0; row < n; ++row, vectors += d, to += d) {
    if (metric.kind == Metric::Kind::euclidean) {
      fits &= write_difference(metric, vectors, factor, to);
      factors[row] = metric.unit * metric.unit;
    } else if (metric.kind == Metric::Kind::cosine) {
      fits &= write_direction(vectors, d, to);
      factors[row] = 1.0;
    } else {  // a query's length does not change the order of documents
      const double scale = write_scaled(vectors, d, to);
      fits &= std::isfinite(scale);
      factors[row] = metric.unit * scale;
    }
  }
  return fits;
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

template bool prepare_documents(const Metric&, const float*, std::size_t, float*);
template bool prepare_documents(const Metric&, const double*, std::size_t, float*);
template bool prepare_queries(const Metric&, const float*, std::size_t, float*, double*);
template bool prepare_queries(const Metric&, const double*, std::size_t, float*, double*);

}  // namespace posh
