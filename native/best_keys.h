// The k largest of many keys. A key is a score above the complement of a slot, so that equal scores are in
// order of lower slots.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace posh {

class BestKeys {
 public:
  explicit BestKeys(std::size_t k) : k_(k) {}

  void add(std::uint64_t key) {
    if (key <= worst_) return;
    keys_.push_back(key);
    if (keys_.size() == 2 * k_) shrink();
  }

  // The keys, largest first, at most k; nothing may be added afterwards.
  const std::vector<std::uint64_t>& sorted() {
    if (keys_.size() > k_) shrink();
    std::sort(keys_.begin(), keys_.end(), std::greater<>());
    return keys_;
  }

  static std::uint32_t slot(std::uint64_t key) { return 0xFFFFFFFFu - static_cast<std::uint32_t>(key); }

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

inline bool passes(const std::uint64_t* bitmap, std::size_t slot) {
  return !bitmap || (bitmap[slot / 64] >> (slot % 64) & 1);
}

}  // namespace posh
