// Vectors are prepared in double precision: their squares fit, whatever their scale.
#include "metric.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace posh {
namespace {

// Writes a vector with unit length; returns its length.
template <class T>
double write_direction(const T* vector, std::size_t d, float* to) {
  double squares = 0;
  for (std::size_t i = 0; i < d; ++i) squares += static_cast<double>(vector[i]) * static_cast<double>(vector[i]);
  int exponent = 0;
  if (!(squares > 1e-200 && squares < 1e200)) {  // only doubles have such squares, or the vector is zero
    double largest = 0;
    for (std::size_t i = 0; i < d; ++i) largest = std::max(largest, std::fabs(static_cast<double>(vector[i])));
    if (largest == 0) {
      std::fill(to, to + d, 0.0f);
      return 0;
    }
    std::frexp(largest, &exponent);
    squares = 0;
    for (std::size_t i = 0; i < d; ++i) {
      const double value = std::ldexp(static_cast<double>(vector[i]), -exponent);
      squares += value * value;
    }
  }
  const double length = std::sqrt(squares);
  if (exponent)
    for (std::size_t i = 0; i < d; ++i)
      to[i] = static_cast<float>(std::ldexp(static_cast<double>(vector[i]), -exponent) / length);
  else
    for (std::size_t i = 0; i < d; ++i) to[i] = static_cast<float>(static_cast<double>(vector[i]) / length);
  return std::ldexp(length, exponent);
}

// Writes (vector - mean) * factor; returns whether all numbers fit into float.
template <class T>
bool write_difference(const Metric& metric, const T* vector, double factor, float* to) {
  const std::size_t d = metric.mean.size();
  const double* mean = metric.mean.data();
  std::int32_t n_unfit = 0;
  for (std::size_t i = 0; i < d; ++i) {
    to[i] = static_cast<float>((static_cast<double>(vector[i]) - mean[i]) * factor);
    std::uint32_t bits;
    std::memcpy(&bits, to + i, sizeof bits);
    constexpr std::uint32_t exponent = 0x7F800000u;  // all of it is set for infinities and NaN
    n_unfit += (bits & exponent) == exponent;
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
    } else {  // a query's length does not change the order of documents
      const double length = write_direction(vectors, d, to);
      fits &= std::isfinite(length);
      factors[row] = metric.kind == Metric::Kind::cosine ? 1.0 : metric.unit * length;
    }
  }
  return fits;
}

void give_back(const double* factors, std::size_t n, std::size_t k, float* scores) {
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
