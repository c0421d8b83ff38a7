// The preparation of vectors, written once for every instruction set.
//
// Files for an instruction set include all standard headers and metric.h before the region for that instruction set:
// see avx2_begin.h.
//
// `Isa` supplies:
//   Four    four doubles, with the operators +, - and *
//   Four repeat(double)
//   Four load(const float*), Four load(const double*)
//   void store(Four, float*)  rounds to float
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "metric.h"

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

struct Length {
  double value;  // not finite if any number of the vector is not finite
  int exponent;  // the length is value * 2^exponent
};

// Returns the sum of squares: number i is added to the sum i % 16, and the sums are added pairwise.
template <class Isa, class T>
double sum_squares(const T* vector, std::size_t d) {
  typename Isa::Four four[4] = {};
  double sums[16];
  std::size_t i = 0;
  for (; i + 16 <= d; i += 16)
    for (std::size_t j = 0; j < 4; ++j) {
      const auto values = Isa::load(vector + i + 4 * j);
      four[j] = four[j] + values * values;
    }
  std::memcpy(sums, four, sizeof sums);
  for (std::size_t j = 0; i + j < d; ++j)
    sums[j] += static_cast<double>(vector[i + j]) * static_cast<double>(vector[i + j]);
  for (std::size_t n = 8; n; n /= 2)
    for (std::size_t j = 0; j < n; ++j) sums[j] += sums[j + n];
  return sums[0];
}

// The length of a vector whose squares do not fit into double, of one that is not finite, or of a zero vector.
template <class T>
Length extreme_length(const T* vector, std::size_t d) {
  double largest = 0;
  for (std::size_t i = 0; i < d; ++i) {
    const double magnitude = std::fabs(static_cast<double>(vector[i]));
    if (!(magnitude <= largest)) largest = magnitude;
    if (std::isnan(largest)) break;
  }
  if (largest == 0 || !std::isfinite(largest)) return {largest, 0};
  int exponent = 0;
  std::frexp(largest, &exponent);
  double squares = 0;
  for (std::size_t i = 0; i < d; ++i) {
    const double value = std::ldexp(static_cast<double>(vector[i]), -exponent);
    squares += value * value;
  }
  return {std::sqrt(squares), exponent};
}

template <class Isa, class T>
Length length_of(const T* vector, std::size_t d) {
  const double squares = sum_squares<Isa>(vector, d);
  if (squares > 1e-200 && squares < 1e200) return {std::sqrt(squares), 0};
  return extreme_length(vector, d);
}

// Writes vector * 2^exponent * factor.
template <class Isa, class T>
void write_product(const T* vector, std::size_t d, int exponent, double factor, float* to) {
  std::size_t i = 0;
  if (!exponent)
    for (const auto factors = Isa::repeat(factor); i + 4 <= d; i += 4)
      Isa::store(Isa::load(vector + i) * factors, to + i);
  for (; i < d; ++i) to[i] = static_cast<float>(std::ldexp(static_cast<double>(vector[i]), exponent) * factor);
}

// Writes a vector with unit length; returns whether all numbers are finite.
template <class Isa, class T>
bool write_direction(const T* vector, std::size_t d, float* to) {
  const Length length = length_of<Isa>(vector, d);
  if (length.value == 0)
    std::fill(to, to + d, 0.0f);
  else
    write_product<Isa>(vector, d, -length.exponent, 1.0 / length.value, to);
  return std::isfinite(length.value);
}

// Writes a vector divided by the power of two above its length, and returns that power: all digits are kept, so that
// products that are equal stay equal. The power is not finite if any number of the vector is not finite.
template <class Isa, class T>
double write_scaled(const T* vector, std::size_t d, float* to) {
  const Length length = length_of<Isa>(vector, d);
  if (length.value == 0 || !std::isfinite(length.value)) {
    std::fill(to, to + d, 0.0f);
    return length.value;
  }
  int exponent = 0;
  std::frexp(length.value, &exponent);
  if (length.exponent)
    write_product<Isa>(vector, d, -(exponent + length.exponent), 1.0, to);
  else
    write_product<Isa>(vector, d, 0, std::ldexp(1.0, -exponent), to);
  return std::ldexp(1.0, exponent + length.exponent);
}

// Writes (vector - mean) * factor; returns whether the squares of all numbers, and the sum of many, fit into float.
template <class Isa, class T>
bool write_difference(const Metric& metric, const T* vector, double factor, float* to) {
  const std::size_t d = metric.mean.size();
  const double* mean = metric.mean.data();
  const auto factors = Isa::repeat(factor);
  std::size_t i = 0;
  for (; i + 4 <= d; i += 4) Isa::store((Isa::load(vector + i) - Isa::load(mean + i)) * factors, to + i);
  for (; i < d; ++i) to[i] = static_cast<float>((static_cast<double>(vector[i]) - mean[i]) * factor);
  constexpr std::int32_t exponent = 0x7F800000, too_large = (127 + 56) << 23;  // 2^56; infinities and NaN are larger
  std::int32_t largest = 0;
  for (i = 0; i < d; ++i) {
    std::int32_t bits;
    std::memcpy(&bits, to + i, sizeof bits);
    largest = std::max(largest, bits & exponent);
  }
  return largest < too_large;
}

template <class Isa, class T>
bool prepare_documents(const Metric& metric, const T* vectors, std::size_t n, float* to) {
  const std::size_t d = metric.mean.size();
  const double factor = 1.0 / metric.unit;
  bool fits = true;
  for (std::size_t row = 0; row < n; ++row, vectors += d, to += d) {
    if (metric.kind == Metric::Kind::cosine)
      write_direction<Isa>(vectors, d, to);
    else
      fits &= write_difference<Isa>(metric, vectors, factor, to);
  }
  return fits;
}

template <class Isa, class T>
bool prepare_queries(const Metric& metric, const T* vectors, std::size_t n, float* to, double* factors) {
  const std::size_t d = metric.mean.size();
  const double factor = 1.0 / metric.unit;
  bool fits = true;
  for (std::size_t row = 0; row < n; ++row, vectors += d, to += d) {
    if (metric.kind == Metric::Kind::euclidean) {
      fits &= write_difference<Isa>(metric, vectors, factor, to);
      factors[row] = metric.unit * metric.unit;
    } else if (metric.kind == Metric::Kind::cosine) {
      fits &= write_direction<Isa>(vectors, d, to);
      factors[row] = 1.0;
    } else {  // a query's length does not change the order of documents
      const double scale = write_scaled<Isa>(vectors, d, to);
      fits &= std::isfinite(scale);
      factors[row] = metric.unit * scale;
    }
  }
  return fits;
}

template <class Isa>
bool prepare_documents(const Metric& metric, const Reals& vectors, float* to) {
  if (vectors.is_double) return prepare_documents<Isa>(metric, static_cast<const double*>(vectors.data), vectors.n, to);
  return prepare_documents<Isa>(metric, static_cast<const float*>(vectors.data), vectors.n, to);
}

template <class Isa>
bool prepare_queries(const Metric& metric, const Reals& vectors, float* to, double* factors) {
  if (vectors.is_double)
    return prepare_queries<Isa>(metric, static_cast<const double*>(vectors.data), vectors.n, to, factors);
  return prepare_queries<Isa>(metric, static_cast<const float*>(vectors.data), vectors.n, to, factors);
}

}  // namespace
}  // namespace posh
