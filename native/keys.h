// Keys for choosing the k best: a score and a position packed into one integer, so that one comparison
// decides both. Of equal scores the lower position wins everywhere. This is the list of all encodings.
//
//   name              64 bits, from the top                     order       used by
//   descending key    score (32) | 2^32 - 1 - position (32)     high first  winners, table_topk, hamming_topk
//   ascending key     the complement of a descending key        low first   best_candidates
//   Best's entry      overlap (17) | slot (47)                  not sorted  overlap_topk (best.h)
//   list key          n_active - overlap (16) | slot (48)       low first   overlap_lists (overlap_lists.cpp)
//
// Why they differ:
// - A descending key holds any score that fits into 32 bits, including floats (see score_key). A position is a bit
//   number or a slot below 2^32.
// - best_candidates sorts by sort_keys, which is ascending. It therefore takes complements.
// - Overlap searches allow slots up to 2^47, so the score gets 17 bits: overlaps reach 65,536.
// - Best sees documents by ascending slot and counts its scores. It compares the score part of an entry only.
// - Lists hold slots in any order, so a list key must decide ties as well. Its slot has 48 bits, which are six
//   whole digits of sort_keys: with 47, one more digit would differ. The 16 bits that are left suffice: 65,536
//   active bits are all bits of a code, and every document shares at least one of them.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

inline std::uint64_t descending_key(std::uint32_t score, std::uint32_t position) {
  return std::uint64_t{score} << 32 | (0xFFFFFFFFu - position);
}

inline std::uint32_t position_of_key(std::uint64_t key) { return 0xFFFFFFFFu - static_cast<std::uint32_t>(key); }

// The descending key of a float score.
inline std::uint64_t score_key(float score, std::uint32_t position) {
  std::uint32_t ordered = 0;  // below every number, so that NaN loses
  if (!std::isnan(score)) {
    score += 0.0f;  // -0.0 becomes 0.0: equal scores must have equal keys
    std::uint32_t raw;
    std::memcpy(&raw, &score, sizeof raw);
    // IEEE floats order like sign-magnitude integers: flip all bits of negatives, the sign of the rest.
    ordered = (raw & 0x80000000u) ? ~raw : raw | 0x80000000u;
  }
  return descending_key(ordered, position);
}

// The float score of a descending key; the score must not be NaN.
inline float score_of_key(std::uint64_t key) {
  const auto ordered = static_cast<std::uint32_t>(key >> 32);
  const std::uint32_t raw = (ordered & 0x80000000u) ? ordered ^ 0x80000000u : ~ordered;
  float score;
  std::memcpy(&score, &raw, sizeof score);
  return score;
}

// The k largest of many descending keys.
class BestKeys {
 public:
  explicit BestKeys(std::size_t k) : k_(k) {}

  void add(std::uint64_t key) {
    if (key <= worst_) return;
    keys_.push_back(key);
    if (keys_.size() == 2 * k_) shrink();
  }

  // At most k keys, the largest first. Do not add keys afterwards.
  const std::vector<std::uint64_t>& sorted() {
    if (keys_.size() > k_) shrink();
    std::sort(keys_.begin(), keys_.end(), std::greater<>());
    return keys_;
  }

 private:
  void shrink() {
    std::nth_element(keys_.begin(), keys_.begin() + (k_ - 1), keys_.end(), std::greater<>());
    worst_ = keys_[k_ - 1];
    keys_.resize(k_);
  }

  std::size_t k_;
  std::uint64_t worst_ = 0;
  std::vector<std::uint64_t> keys_;
};

// Sorts keys in ascending order by the bits from `lowest` on, a multiple of 8. `scratch` is overwritten.
// It sorts digit by digit of 8 bits: for some thousand keys that is a few times faster than comparisons.
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

}  // namespace
}  // namespace posh
