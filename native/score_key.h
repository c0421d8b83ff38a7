// One integer per (score, bit) whose order is the order of winning: higher score first, then lower bit.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

[[maybe_unused]] std::uint64_t score_key(float score, std::uint32_t bit) {
  std::uint32_t ordered = 0;  // below every number, so that NaN loses
  if (!std::isnan(score)) {
    score += 0.0f;  // -0.0 becomes 0.0: equal scores must have equal keys
    std::uint32_t raw;
    std::memcpy(&raw, &score, sizeof raw);
    // IEEE floats order like sign-magnitude integers: flip all bits of negatives, the sign of the rest.
    ordered = (raw & 0x80000000u) ? ~raw : raw | 0x80000000u;
  }
  return (std::uint64_t{ordered} << 32) | (0xFFFFFFFFu - bit);
}

// The score of a key that is not NaN's.
[[maybe_unused]] float score_of_key(std::uint64_t key) {
  const auto ordered = static_cast<std::uint32_t>(key >> 32);
  const std::uint32_t raw = (ordered & 0x80000000u) ? ordered ^ 0x80000000u : ~ordered;
  float score;
  std::memcpy(&score, &raw, sizeof score);
  return score;
}

}  // namespace
}  // namespace posh
