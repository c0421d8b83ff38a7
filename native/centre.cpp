// Centring: one pass subtracts the mean, scales, and finds the largest magnitude.
#include <algorithm>
#include <cstring>

#include "kernels.h"

namespace posh {

template <class T>
float centre(const T* vectors, std::size_t n_rows, std::size_t n_columns, const T* mean, T factor, float* centred) {
  std::int32_t peak = 0;  // without the sign bit, floats order like integers, and NaN is the largest
  for (std::size_t row = 0; row < n_rows; ++row, vectors += n_columns, centred += n_columns)
    for (std::size_t i = 0; i < n_columns; ++i) {
      const float value = static_cast<float>((vectors[i] - mean[i]) * factor);
      std::int32_t raw;
      std::memcpy(&raw, &value, sizeof raw);
      peak = std::max(peak, raw & 0x7FFFFFFF);
      centred[i] = value;
    }
  float largest;
  std::memcpy(&largest, &peak, sizeof largest);
  return largest;
}

template float centre(const float*, std::size_t, std::size_t, const float*, float, float*);
template float centre(const double*, std::size_t, std::size_t, const double*, double, float*);

}  // namespace posh
