// The verbs of the native core and the table through which they are called.
//
// Every verb exists at least twice: `scalar` is the specification, the others must equal it bit for
// bit. Callers allocate; OUT arguments are written completely. Nothing here checks its arguments:
// Python has refused bad input already, and bindings.cpp has compared the shapes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace posh {

// The `n_active` largest of each row's `n_bits` scores, as ascending bit numbers.
// Equal scores: the lower bit wins. -0.0 equals 0.0; NaN loses to everything.
//   IN  scores   (n_rows, n_bits), row-major;   n_bits <= 65536, 1 <= n_active <= n_bits
//   OUT winners  (n_rows, n_active), row-major
using WinnersFn = void (*)(const float* scores, std::size_t n_rows, std::size_t n_bits,
                           std::size_t n_active, std::uint16_t* winners);

struct Kernels {
  const char* name;
  bool (*supported)();
  WinnersFn winners;
};

// All implementations that were compiled in, slowest first; the last supported one is the default.
extern const Kernels* const kernels;
extern const std::size_t n_kernels;

void winners_scalar(const float*, std::size_t, std::size_t, std::size_t, std::uint16_t*);
void winners_portable(const float*, std::size_t, std::size_t, std::size_t, std::uint16_t*);
void winners_avx2(const float*, std::size_t, std::size_t, std::size_t, std::uint16_t*);

}  // namespace posh
