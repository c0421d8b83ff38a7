// Projects a vector to the n_bits numbers of which a code has the largest. See Projection in blocks.h.
#pragma once

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

// The Walsh-Hadamard transform in place, without scaling; n is a power of two.
inline void hadamard(float* values, std::size_t n) {
  for (std::size_t half = 1; half < n; half *= 2)
    for (std::size_t at = 0; at < n; at += 2 * half)
      for (std::size_t i = at; i < at + half; ++i) {
        const float a = values[i], b = values[i + half];
        values[i] = a + b;
        values[i + half] = a - b;
      }
}

template <class Isa>
void project(const Projection& projection, const float* values, float* to) {
  const std::size_t n = projection.n_columns;
  if (projection.weights) {
    for (std::size_t bit = 0; bit < projection.n_bits; ++bit)
      to[bit] = Isa::product(projection.weights + bit * n, values, n);
    return;
  }
  const std::size_t size = projection.size;
  for (std::size_t m = 0; m < projection.n_bits / size; ++m, to += size) {
    const float* signs = projection.signs + m * n;
    for (std::size_t i = 0; i < std::min(n, size); ++i) to[i] = values[i] * signs[i];
    for (std::size_t i = n; i < size; ++i) to[i] = 0.0f;
    for (std::size_t i = size; i < n; ++i) to[i % size] += values[i] * signs[i];
    hadamard(to, size);
  }
}

}  // namespace
}  // namespace posh
