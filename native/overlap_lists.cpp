// Exact search in the lists that each query visits, one query after the other.
//
// A query's lists are few, so all their documents are scanned before any is chosen: the counters themselves
// then tell the k-th best score, and nothing is extracted that is not among the best.
#include <algorithm>
#include <vector>

#include "overlap_plan.h"
#include "overlap_search.h"
#include "sort_keys.h"

namespace posh {
namespace {

constexpr std::size_t queries_per_task = 16;
constexpr std::size_t group_words = 1024;  // 65,536 documents are scanned before the best of them are taken
constexpr int slot_bits = 47;
constexpr std::uint64_t slot_mask = (std::uint64_t{1} << slot_bits) - 1;

struct ListTile {
  Tile tile;
  const std::int64_t* slots;
};

// What all threads share: the tiles of the segments that are visited at all.
class ListTiles {
 public:
  explicit ListTiles(const ListSearch& search) : allowed_(search.n_segments), tiles_(search.n_segments) {
    for (std::int64_t i = 0; i < search.offsets[search.n_queries]; ++i) {
      const std::int32_t s = search.visits[i];
      if (tiles_[s].empty()) add(search.segments[s], search.slots[s], allowed_[s], tiles_[s]);
    }
  }

  const std::vector<ListTile>& of(std::size_t segment) const { return tiles_[segment]; }

 private:
  static void add(const Segment& segment, const std::int64_t* slots, std::vector<std::uint64_t>& allowed,
                  std::vector<ListTile>& tiles) {
    allowed = allowed_words(segment);
    if (allowed.empty()) allowed.assign(segment.n_docs / 64, ~std::uint64_t{0});
    for (std::size_t word = 0; word < allowed.size(); word += max_tile_words) {
      const std::size_t n_words = std::min(max_tile_words, allowed.size() - word);
      tiles.push_back({{segment.planes + word, segment.stride, n_words, allowed.data() + word}, slots + 64 * word});
    }
  }

  std::vector<std::vector<std::uint64_t>> allowed_;
  std::vector<std::vector<ListTile>> tiles_;
};

class Task {
 public:
  Task(const ListSearch& search, const ListTiles& tiles, ScanSteps steps)
      : search_(search), tiles_(tiles), steps_(steps), n_counters_(counters_for(search.n_active)),
        offsets_(search.n_active), passing_(group_words), equal_(group_words), sums_(group_words * n_counters_) {}

  void run(std::size_t q, std::int64_t* ids, std::int32_t* scores) {
    keys_.clear();
    threshold_ = 0;
    const std::uint16_t* query = search_.queries + q * search_.n_active;
    for (std::int64_t i = search_.offsets[q]; i < search_.offsets[q + 1]; ++i) {
      if (i + 1 < search_.offsets[q + 1]) prefetch(tiles_.of(search_.visits[i + 1]), query);
      for (const ListTile& tile : tiles_.of(search_.visits[i])) scan(tile, query);
    }
    take_best();
    write(ids, scores);
  }

 private:
  // Asks for the first tile of the next list: within a list, the processor sees itself what comes next.
  POSH_INLINE void prefetch(const std::vector<ListTile>& list, const std::uint16_t* query) const {
    if (list.empty()) return;
    const Tile& tile = list.front().tile;
    for (std::size_t j = 0; j < search_.n_active; ++j)
      for (std::size_t word = 0; word < tile.n_words; word += 8)
        __builtin_prefetch(tile.planes + query[j] * tile.stride + word);
  }

  void scan(const ListTile& list_tile, const std::uint16_t* query) {
    const Tile& tile = list_tile.tile;
    if (n_words_ + tile.n_words > group_words) {
      take_best();
      raise_threshold();
    }
    steps_.collect(tile, query, search_.n_active, threshold_, offsets_.data(), passing_.data() + n_words_,
                   sums_.data() + n_words_ * n_counters_);
    group_.push_back(&list_tile);
    n_words_ += tile.n_words;
  }

  // The best of the documents scanned since the last time become keys: ascending keys are best first.
  void take_best() {
    found_.resize(std::max(found_.size(), 64 * n_words_ + 2));
    const std::size_t n =
        steps_.take_best({n_words_, n_counters_, passing_.data(), sums_.data()}, search_.k, equal_.data(), found_.data());
    const Found *found = found_.data(), *end = found + n;
    std::size_t first = 0;
    for (const ListTile* list_tile : group_) {
      const std::size_t last = first + 64 * list_tile->tile.n_words;
      for (; found != end && found->position < last; ++found)
        keys_.push_back(std::uint64_t{search_.n_active - found->score} << slot_bits |
                        static_cast<std::uint64_t>(list_tile->slots[found->position - first]));
      first = last;
    }
    group_.clear();
    n_words_ = 0;
  }

  // Slots come in no order, so documents with the k-th best score still matter.
  void raise_threshold() {
    if (keys_.size() < search_.k) return;
    keep_smallest();
    threshold_ = static_cast<std::uint32_t>(search_.n_active - (keys_.back() >> slot_bits));
  }

  // The k-th smallest key becomes the last one.
  void keep_smallest() {
    std::nth_element(keys_.begin(), keys_.begin() + (search_.k - 1), keys_.end());
    keys_.resize(search_.k);
  }

  void write(std::int64_t* ids, std::int32_t* scores) {
    if (keys_.size() > 2 * search_.k) keep_smallest();
    sort_keys(keys_, scratch_);
    const std::size_t n = std::min(search_.k, keys_.size());
    for (std::size_t i = 0; i < n; ++i) {
      ids[i] = static_cast<std::int64_t>(keys_[i] & slot_mask);
      scores[i] = static_cast<std::int32_t>(search_.n_active - (keys_[i] >> slot_bits));
    }
    std::fill(ids + n, ids + search_.k, -1);
    std::fill(scores + n, scores + search_.k, -1);
  }

  const ListSearch& search_;
  const ListTiles& tiles_;
  ScanSteps steps_;
  int n_counters_;
  std::uint32_t threshold_ = 0;
  std::size_t n_words_ = 0;               // of the group
  std::vector<const ListTile*> group_;    // scanned, and not yet taken
  std::vector<std::uint32_t> offsets_;
  std::vector<std::uint64_t> passing_, equal_, sums_;
  std::vector<Found> found_;
  std::vector<std::uint64_t> keys_, scratch_;
};

}  // namespace

bool search_lists(const ListSearch& search, ScanSteps steps, std::int64_t* ids, std::int32_t* scores) {
  const ListTiles tiles(search);
  Cancellation cancellation(search.poll);
  const std::size_t n_tasks = (search.n_queries + queries_per_task - 1) / queries_per_task;
  run_tasks(n_tasks, search.n_threads, cancellation, [&](std::size_t number) {
    Task task(search, tiles, steps);
    const std::size_t first = number * queries_per_task;
    for (std::size_t q = first; q < std::min(first + queries_per_task, search.n_queries); ++q) {
      if (cancellation.requested()) return;
      task.run(q, ids + q * search.k, scores + q * search.k);
    }
  });
  return !cancellation.requested();
}

}  // namespace posh
