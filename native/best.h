// The best documents of one query so far, and the score that a further document needs.
//
// Scores are small integers, so a histogram replaces the heap. Documents arrive by ascending slot, and of equal
// scores the lower slot wins. So once k documents reach a score, later documents must exceed it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels.h"
#include "prefetch.h"

namespace posh {

class alignas(64) Best {  // a whole cache line, because a batch visits every Best once per tile
 public:
  // Rejects documents below `threshold`, even if fewer than k remain.
  Best(std::size_t k, std::size_t max_score, std::uint32_t threshold)
      : n_missing_(static_cast<std::int64_t>(k)), threshold_(threshold), n_with_score_(max_score + 2) {}

  // The lowest score that add() accepts.
  std::uint32_t threshold() const { return threshold_; }

  // Whether there are k documents. If so, the lowest of their scores is threshold() - 1.
  bool complete() const { return complete_; }

  // Prefetches the memory that the next add() writes.
  void prefetch() const { prefetch_line(kept_.data() + kept_.size()); }

  void add(std::uint32_t score, std::uint64_t slot) {
    if (score < threshold_) return;
    if (kept_.size() == kept_.capacity()) make_room();
    kept_.push_back(std::uint64_t{score} << slot_bits | slot);
    ++n_with_score_[score];
    if (--n_missing_ > 0) return;
    complete_ = true;
    while (n_missing_ <= 0) n_missing_ += n_with_score_[threshold_++];
  }

  // Calls use(rank, score, slot) for each of the k best, by ascending slot.
  template <class Use>
  void each(std::size_t k, Use use) const {
    std::vector<std::size_t> next_rank(n_with_score_.size());
    for (std::size_t score = next_rank.size() - 1; score-- > lowest();)
      next_rank[score] = next_rank[score + 1] + n_with_score_[score + 1];
    for (const std::uint64_t entry : kept_) {
      const std::size_t score = entry >> slot_bits;
      if (score >= lowest() && next_rank[score] < k)
        use(next_rank[score]++, score, entry & ((std::uint64_t{1} << slot_bits) - 1));
    }
  }

 private:
  std::uint32_t lowest() const { return threshold_ - complete_; }

  // Drops documents that are no longer among the best. Fewer than 2k remain: those that reach the threshold now,
  // fewer than k, and those k that reached it just before it last rose.
  void make_room() {
    const std::uint64_t worst = std::uint64_t{lowest()} << slot_bits;
    kept_.erase(std::remove_if(kept_.begin(), kept_.end(), [=](std::uint64_t entry) { return entry < worst; }),
                kept_.end());
    if (2 * kept_.size() >= kept_.capacity()) kept_.reserve(2 * kept_.size() + 16);
  }

  std::int64_t n_missing_;  // k minus the number of documents that reach the threshold
  std::uint32_t threshold_;
  bool complete_ = false;
  std::vector<std::uint32_t> n_with_score_;
  std::vector<std::uint64_t> kept_;  // score << slot_bits | slot, by ascending slot (keys.h lists all encodings)
};

}  // namespace posh
