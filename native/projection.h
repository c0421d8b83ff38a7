// What is made of a vector before it is searched for or stored: 8-bit numbers, and the n_bits numbers of which a code
// has the largest. See Projection in blocks.h.
#pragma once

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

// A vector as 8-bit numbers; returns the unit: vector = unit * numbers.
inline float quantise(const float* values, std::size_t n, std::int8_t* numbers) {
  float largest = 0;
  for (std::size_t j = 0; j < n; ++j) largest = std::max(largest, std::fabs(values[j]));
  float unit = largest / 127.0f;
  if (!(unit >= smallest_unit)) unit = 1.0f;  // all numbers become 0
  for (std::size_t j = 0; j < n; ++j) numbers[j] = static_cast<std::int8_t>(std::nearbyint(values[j] / unit));
  return unit;
}

// The Walsh-Hadamard transform in place, without scaling, from the stage on that adds numbers `half` apart. The transform
// of n numbers, a power of two, has the stages half = 1, 2, 4, …, n / 2.
inline void hadamard_from(std::size_t half, float* values, std::size_t n) {
  for (; half < n; half *= 2)
    for (float* at = values; at < values + n; at += 2 * half) {
      float *__restrict first = at, *__restrict second = at + half;
      for (std::size_t i = 0; i < half; ++i) {
        const float a = first[i], b = second[i];
        first[i] = a + b;
        second[i] = a - b;
      }
    }
}

// The products of a vector (n) with each row (n_rows, n).
template <class Isa>
void multiply(const float* rows, std::size_t n_rows, const float* values, std::size_t n, float* to) {
  std::size_t row = 0;
  for (; row + 4 <= n_rows; row += 4, rows += 4 * n)  // four independent sums take little longer than one
    Isa::products({rows, rows + n, rows + 2 * n, rows + 3 * n}, values, n, to + row);
  for (; row < n_rows; ++row, rows += n) to[row] = Isa::product(rows, values, n);
}

template <class Isa>
void reduce(const Reduction& reduction, const float* values, float* to) {
  multiply<Isa>(reduction.rows, reduction.n_columns, values, reduction.n_features, to);
}

template <class Isa>
void project(const Projection& projection, const float* values, float* to) {
  const std::size_t n = projection.n_columns;
  if (projection.weights) return multiply<Isa>(projection.weights, projection.n_bits, values, n, to);
  const std::size_t size = projection.size;
  for (std::size_t m = 0; m < projection.n_bits / size; ++m, to += size) {
    const float* signs = projection.signs + m * n;
    for (std::size_t i = 0; i < std::min(n, size); ++i) to[i] = values[i] * signs[i];
    for (std::size_t i = n; i < size; ++i) to[i] = 0.0f;
    for (std::size_t i = size; i < n; ++i) to[i % size] += values[i] * signs[i];
    Isa::hadamard(to, size);
  }
}

template <class Isa>
void project_rows(const Projection& projection, const float* vectors, std::size_t n_vectors, float* to) {
  for (std::size_t i = 0; i < n_vectors; ++i)
    project<Isa>(projection, vectors + i * projection.n_columns, to + i * projection.n_bits);
}

}  // namespace
}  // namespace posh
