// Winner selection, straight from its definition: the specification that the tests compare other kernels with.
#include <algorithm>
#include <functional>
#include <vector>

#include "kernels.h"
#include "keys.h"

namespace posh {

void winners_scalar(const float* scores, std::size_t n_rows, std::size_t n_bits, std::size_t n_active,
                    std::uint16_t* winners) {
  std::vector<std::uint64_t> keys(n_bits);
  for (std::size_t row = 0; row < n_rows; ++row, scores += n_bits, winners += n_active) {
    for (std::size_t bit = 0; bit < n_bits; ++bit) keys[bit] = score_key(scores[bit], static_cast<std::uint32_t>(bit));
    std::partial_sort(keys.begin(), keys.begin() + n_active, keys.end(), std::greater<>());
    for (std::size_t i = 0; i < n_active; ++i) winners[i] = static_cast<std::uint16_t>(position_of_key(keys[i]));
    std::sort(winners, winners + n_active);
  }
}

}  // namespace posh
