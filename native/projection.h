// Quantises vectors to 8-bit numbers, and projects them to n_bits numbers, of which a code takes the largest. See
// Projection in blocks.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "blocks.h"

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

// The largest |value|. Magnitudes are compared as integers: compilers vectorise that, but not a maximum of floats.
inline float largest_size(const float* values, std::size_t n) {
  std::int32_t largest = 0;
  for (std::size_t j = 0; j < n; ++j) {
    std::int32_t bits;
    std::memcpy(&bits, values + j, sizeof bits);
    largest = std::max(largest, bits & std::numeric_limits<std::int32_t>::max());
  }
  float size;
  std::memcpy(&size, &largest, sizeof size);
  return size;
}

// Quantises a vector to 8-bit numbers; returns the unit: vector = unit * numbers.
inline float quantise(const float* values, std::size_t n, std::int8_t* numbers) {
  const float largest = largest_size(values, n);
  float unit = largest / 127.0f;
  if (!(unit >= smallest_unit)) unit = 1.0f;  // all numbers become 0
  for (std::size_t j = 0; j < n; ++j) numbers[j] = static_cast<std::int8_t>(std::nearbyint(values[j] / unit));
  return unit;
}

// Computes the Walsh-Hadamard transform in place, without scaling, from the stage on that adds numbers `half` apart.
// The transform of n numbers, a power of two, has the stages half = 1, 2, 4, …, n / 2.
inline void hadamard_from(std::size_t half, float* values, std::size_t n) {
  for (; half < n; half *= 2)
    for (float* at = values; at < values + n; at += 2 * half) {
      float* __restrict first = at, * __restrict second = at + half;
      for (std::size_t i = 0; i < half; ++i) {
        const float a = first[i], b = second[i];
        first[i] = a + b;
        second[i] = a - b;
      }
    }
}

// Multiplies vectors (n_vectors, n) by each row (n_rows, n). A matrix may be larger than the cache, so four
// vectors share each row that is loaded.
//   OUT to  (n_vectors, n_rows)
template <class Isa>
void multiply(const float* rows, std::size_t n_rows, const float* vectors, std::size_t n_vectors, std::size_t n,
              float* to) {
  std::size_t v = 0;
  for (; v + 4 <= n_vectors; v += 4, vectors += 4 * n, to += 4 * n_rows) {
    const float* const four[4] = {vectors, vectors + n, vectors + 2 * n, vectors + 3 * n};
    std::size_t row = 0;
    for (; row + 4 <= n_rows; row += 4) {
      const float* four_rows = rows + row * n;
      float sums[4][4];
      Isa::template products<4, 4>({four_rows, four_rows + n, four_rows + 2 * n, four_rows + 3 * n}, four, n, sums);
      for (std::size_t i = 0; i < 4; ++i) std::copy_n(sums[i], 4, to + i * n_rows + row);
    }
    for (; row < n_rows; ++row)
      for (std::size_t i = 0; i < 4; ++i) to[i * n_rows + row] = Isa::product(rows + row * n, four[i], n);
  }
  for (; v < n_vectors; ++v, vectors += n, to += n_rows) {
    std::size_t row = 0;
    for (; row + 4 <= n_rows; row += 4) {
      const float* four_rows = rows + row * n;
      float sums[1][4];
      Isa::template products<4, 1>({four_rows, four_rows + n, four_rows + 2 * n, four_rows + 3 * n}, {vectors}, n,
                                   sums);
      std::copy_n(sums[0], 4, to + row);
    }
    for (; row < n_rows; ++row) to[row] = Isa::product(rows + row * n, vectors, n);
  }
}

// Reduces vectors (n_vectors, n_features) to (n_vectors, n_columns).
template <class Isa>
void reduce(const Reduction& reduction, const float* vectors, std::size_t n_vectors, float* to) {
  multiply<Isa>(reduction.rows, reduction.n_columns, vectors, n_vectors, reduction.n_features, to);
}

template <class Isa>
void project_by_signs(const Projection& projection, const float* values, float* to) {
  const std::size_t n = projection.n_columns, size = projection.size;
  for (std::size_t m = 0; m < projection.n_bits / size; ++m, to += size) {
    const float* signs = projection.signs + m * n;
    for (std::size_t i = 0; i < std::min(n, size); ++i) to[i] = values[i] * signs[i];
    for (std::size_t i = n; i < size; ++i) to[i] = 0.0f;
    for (std::size_t i = size; i < n; ++i) to[i % size] += values[i] * signs[i];
    Isa::hadamard(to, size);
  }
}

// Projects vectors (n_vectors, n_columns) to (n_vectors, n_bits).
template <class Isa>
void project(const Projection& projection, const float* vectors, std::size_t n_vectors, float* to) {
  const std::size_t n = projection.n_columns, n_bits = projection.n_bits;
  if (projection.weights) return multiply<Isa>(projection.weights, n_bits, vectors, n_vectors, n, to);
  for (std::size_t i = 0; i < n_vectors; ++i) project_by_signs<Isa>(projection, vectors + i * n, to + i * n_bits);
}

}  // namespace
}  // namespace posh
