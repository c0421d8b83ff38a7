// Overlap search in the lists that each query visits, one query after the other.
//
// A query visits few lists, so we scan all their documents before we choose any. The counters of all documents
// together give the k-th best score, and we extract only documents that reach it.
#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "keys.h"
#include "overlap_plan.h"
#include "overlap_search.h"

namespace posh {
namespace {

constexpr std::size_t queries_per_task = 64;
constexpr std::size_t group_words = 1024;  // we scan up to 65,536 documents before we choose the best of them
constexpr int key_slot_bits = 48;          // of a list key: see keys.h
constexpr std::uint64_t slot_mask = (std::uint64_t{1} << key_slot_bits) - 1;

struct ListTile {
  Tile tile;
  const std::int64_t* slots;
};

// The tiles of all segments that some query visits. All threads share them.
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
    allowed = make_allowed_words(segment);
    if (allowed.empty()) allowed.assign(segment.n_docs / 64, ~std::uint64_t{0});
    for (std::size_t word = 0; word < allowed.size(); word += max_tile_words) {
      const std::size_t n_words = std::min(max_tile_words, allowed.size() - word);
      tiles.push_back({{segment.planes + word, segment.stride, n_words, allowed.data() + word}, slots + 64 * word});
    }
  }

  std::vector<std::vector<std::uint64_t>> allowed_;
  std::vector<std::vector<ListTile>> tiles_;
};

// Searches one query after the other, on one thread.
class ListTask {
 public:
  ListTask(const ListSearch& search, const ListTiles& tiles, const ScanSteps& steps)
      : search_(search), tiles_(tiles), steps_(steps), n_counters_(counters_for(search.n_active)),
        offsets_(search.n_active), passing_(group_words), equal_(group_words), sums_(group_words * n_counters_),
        hits_(new Hit[64 * group_words + 2]) {}

  void run(std::size_t q, std::int64_t* ids, std::int32_t* scores) {
    keys_.clear();
    threshold_ = 0;
    tiles_of_query_.clear();
    for (std::int64_t i = search_.offsets[q]; i < search_.offsets[q + 1]; ++i)
      for (const ListTile& tile : tiles_.of(search_.visits[i])) tiles_of_query_.push_back(&tile);
    const std::uint16_t* query = search_.queries + q * search_.n_active;
    for (std::size_t i = 0; i < tiles_of_query_.size(); ++i) {
      if (i + 1 < tiles_of_query_.size()) prefetch(tiles_of_query_[i + 1]->tile, query);
      scan(*tiles_of_query_[i], query);
    }
    take_best();
    write(ids, scores);
  }

 private:
  POSH_INLINE void prefetch(const Tile& tile, const std::uint16_t* query) const {
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

  // Turns the best documents of the group into list keys (see keys.h), and begins a new group.
  void take_best() {
    const ScanResult result{n_words_, n_counters_, passing_.data(), sums_.data()};
    const std::int32_t score = steps_.split(result, search_.k, equal_.data());
    const std::size_t n_better = take(result);
    if (score >= 0) take_lowest(search_.k - n_better, static_cast<std::uint32_t>(score));
    group_.clear();
    n_words_ = 0;
  }

  std::size_t take(const ScanResult& result) {
    const std::size_t n = steps_.extract(result, hits_.get());
    const Hit *hit = hits_.get(), *end = hit + n;
    std::size_t first = 0;
    for (const ListTile* list_tile : group_) {
      const std::size_t last = first + 64 * list_tile->tile.n_words;
      for (; hit != end && hit->position < last; ++hit)
        keys_.push_back(key(hit->score, list_tile->slots[hit->position - first]));
      first = last;
    }
    return n;
  }

  // Of the documents that have the k-th best score, takes those with the n lowest slots.
  void take_lowest(std::size_t n, std::uint32_t score) {
    const std::size_t before = keys_.size();
    const std::uint64_t* equal = equal_.data();
    std::uint64_t last = ~std::uint64_t{0};  // higher keys are not among the n lowest
    for (const ListTile* list_tile : group_) {
      take_below(list_tile->slots, equal, list_tile->tile.n_words, score, last);
      equal += list_tile->tile.n_words;
      if (keys_.size() > before + 2 * n) last = cut(before, n);
    }
    if (keys_.size() > before + n) cut(before, n);
  }

  // Takes the set documents of a tile up to the key `last`. Slots of a tile ascend, so later keys are higher still.
  void take_below(const std::int64_t* slots, const std::uint64_t* words, std::size_t n_words, std::uint32_t score,
                  std::uint64_t last) {
    for (std::size_t word = 0; word < n_words; ++word)
      for (std::uint64_t left = words[word]; left; left &= left - 1) {
        const std::uint64_t next = key(score, slots[64 * word + __builtin_ctzll(left)]);
        if (next > last) return;
        keys_.push_back(next);
      }
  }

  std::uint64_t key(std::uint32_t score, std::int64_t slot) const {
    return std::uint64_t{search_.n_active - score} << key_slot_bits | static_cast<std::uint64_t>(slot);
  }

  // The threshold is the k-th best score so far. Documents that only equal it still matter: a later list may hold
  // lower slots.
  void raise_threshold() {
    if (keys_.size() < search_.k) return;
    threshold_ = static_cast<std::uint32_t>(search_.n_active - (cut(0, search_.k) >> key_slot_bits));
  }

  // Of the keys from `begin` on, keeps the n smallest and returns the largest of these.
  std::uint64_t cut(std::size_t begin, std::size_t n) {
    std::nth_element(keys_.begin() + begin, keys_.begin() + (begin + n - 1), keys_.end());
    keys_.resize(begin + n);
    return keys_.back();
  }

  void write(std::int64_t* ids, std::int32_t* scores) {
    if (keys_.size() > search_.k) cut(0, search_.k);
    sort_keys(keys_, scratch_);
    const std::size_t n = keys_.size();
    for (std::size_t i = 0; i < n; ++i) {
      ids[i] = static_cast<std::int64_t>(keys_[i] & slot_mask);
      scores[i] = static_cast<std::int32_t>(search_.n_active - (keys_[i] >> key_slot_bits));
    }
    std::fill(ids + n, ids + search_.k, -1);
    std::fill(scores + n, scores + search_.k, -1);
  }

  const ListSearch& search_;
  const ListTiles& tiles_;
  const ScanSteps& steps_;
  int n_counters_;
  std::uint32_t threshold_ = 0;
  std::vector<const ListTile*> tiles_of_query_;
  std::vector<const ListTile*> group_;  // tiles that were scanned, but from which nothing was taken yet
  std::size_t n_words_ = 0;             // words of all tiles of the group
  std::vector<std::uint32_t> offsets_;
  std::vector<std::uint64_t> passing_, equal_, sums_;
  std::unique_ptr<Hit[]> hits_;  // not a vector: a vector would initialise all entries
  std::vector<std::uint64_t> keys_, scratch_;
};

// Orders queries so that those that visit the same lists follow one another and find the lists in the cache.
std::vector<std::size_t> order_by_visits(const ListSearch& search) {
  std::vector<std::size_t> order(search.n_queries);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::lexicographical_compare(search.visits + search.offsets[a], search.visits + search.offsets[a + 1],
                                        search.visits + search.offsets[b], search.visits + search.offsets[b + 1]);
  });
  return order;
}

}  // namespace

bool search_lists(const ListSearch& search, const ScanSteps& steps, std::int64_t* ids, std::int32_t* scores) {
  const ListTiles tiles(search);
  const std::vector<std::size_t> order = order_by_visits(search);
  Cancellation cancellation(search.poll);
  const std::size_t n_tasks = (search.n_queries + queries_per_task - 1) / queries_per_task;
  run_tasks(n_tasks, search.n_threads, cancellation, [&](std::size_t number) {
    ListTask task(search, tiles, steps);
    const std::size_t first = number * queries_per_task, last = std::min(first + queries_per_task, search.n_queries);
    for (std::size_t i = first; i < last && !cancellation.requested(); ++i)
      task.run(order[i], ids + order[i] * search.k, scores + order[i] * search.k);
  });
  return !cancellation.requested();
}

}  // namespace posh
