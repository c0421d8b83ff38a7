// Sorting some thousand integers: digit by digit from the lowest, a few times faster than by comparisons.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace posh {

// Ascending by the bits from `lowest` on, a multiple of 8. `scratch` is overwritten.
inline void sort_keys(std::vector<std::uint64_t>& keys, std::vector<std::uint64_t>& scratch, int lowest = 0) {
  constexpr std::size_t few = 64;
  if (keys.size() <= few) return std::sort(keys.begin(), keys.end());
  std::uint64_t differing = 0;
  for (const std::uint64_t key : keys) differing |= key ^ keys.front();
  scratch.resize(keys.size());
  for (int shift = lowest; shift < 64; shift += 8) {
    if (!(differing >> shift & 0xFF)) continue;
    std::array<std::uint32_t, 257> place{};
    for (const std::uint64_t key : keys) ++place[(key >> shift & 0xFF) + 1];
    for (std::size_t digit = 0; digit < 256; ++digit) place[digit + 1] += place[digit];
    for (const std::uint64_t key : keys) scratch[place[key >> shift & 0xFF]++] = key;
    keys.swap(scratch);
  }
}

}  // namespace posh
