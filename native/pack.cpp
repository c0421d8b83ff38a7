// Packing: writes codes into the planes of a segment.
#include "kernels.h"

namespace posh {

void pack(const std::uint16_t* codes, std::size_t n_codes, std::size_t n_active, std::size_t first_doc,
          std::size_t stride, std::uint64_t* planes) {
  for (std::size_t i = 0; i < n_codes; ++i, codes += n_active) {
    const std::size_t doc = first_doc + i;
    for (std::size_t j = 0; j < n_active; ++j) planes[codes[j] * stride + doc / 64] |= std::uint64_t{1} << (doc % 64);
  }
}

}  // namespace posh
