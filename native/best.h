// The best documents of one query so far, and the score that the next one needs to be among them.
//
// Scores are small integers, so a histogram replaces the heap. Documents arrive by ascending slot: of
// equal scores the first stay, so once k documents reach a score, later ones must exceed it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace posh {

class alignas(64) Best {  // one cache line: a batch visits it for every tile
 public:
  // Documents below `threshold` are refused, even if fewer than k are left.
  Best(std::size_t k, std::size_t max_score, std::uint32_t threshold)
      : n_missing_(static_cast<std::int64_t>(k)), threshold_(threshold), n_with_score_(max_score + 2) {}

  // The lowest score that still matters.
  std::uint32_t threshold() const { return threshold_; }

  // Whether k documents were found; their lowest score is threshold() - 1.
  bool complete() const { return complete_; }

  // Asks for the memory that the next add() writes.
  void prefetch() const { __builtin_prefetch(kept_.data() + kept_.size(), 1); }

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
  static constexpr int slot_bits = 47;

  std::uint32_t lowest() const { return threshold_ - complete_; }

  // At most 2k documents are worth keeping: fewer than k that pass, and k that did when the threshold rose.
  void make_room() {
    const std::uint64_t worst = std::uint64_t{lowest()} << slot_bits;
    kept_.erase(std::remove_if(kept_.begin(), kept_.end(), [=](std::uint64_t entry) { return entry < worst; }),
                kept_.end());
    if (2 * kept_.size() >= kept_.capacity()) kept_.reserve(2 * kept_.size() + 16);
  }

  std::int64_t n_missing_;  // k less the documents that reach the threshold
  std::uint32_t threshold_;
  bool complete_ = false;
  std::vector<std::uint32_t> n_with_score_;
  std::vector<std::uint64_t> kept_;  // score above slot in one word, by ascending slot
};

}  // namespace posh
