// Overlap search over all segments: decides which thread scans which tile for which query, and in which order.
// Each query collects its hits in a Best.
#include "overlap_search.h"

#include <array>
#include <cmath>

#include "best.h"
#include "overlap_plan.h"

namespace posh {
namespace {

constexpr std::size_t line_words = 8;                // a cache line, and the smallest tile
constexpr std::size_t min_batch = 64;                // with fewer queries, small tiles are not faster
constexpr std::size_t batch_tile_words = 16 * 1024;  // all planes of a batch's tile: 128 KB, so that L2 holds two tiles

// Limits of one task.
constexpr std::size_t max_queries_at_once = 1024;
constexpr std::size_t max_kept_at_once = 1 << 22;  // documents that all queries of the task keep

// The sample from which a threshold is guessed: about 20 tiles, but at least every 64th and at most every 16th.
constexpr std::size_t sample_tiles = 20;
constexpr std::size_t min_step = 16, max_step = 64;

// With a smaller k or fewer tiles, a guess costs more than it saves.
constexpr std::size_t min_k_to_guess = 32;
constexpr std::size_t min_tiles_to_guess = 64;

// The bitmap of a tile whose documents may all be found.
const std::array<std::uint64_t, max_tile_words> all_allowed = [] {
  std::array<std::uint64_t, max_tile_words> words;
  words.fill(~std::uint64_t{0});
  return words;
}();

// Part i of n parts of nearly equal size.
Range nth_part(std::size_t total, std::size_t i, std::size_t n) { return {total * i / n, total * (i + 1) / n}; }

// Words of a plane, in whole blocks of 256 documents.
std::size_t block_words(const Segment& segment) { return (segment.n_docs + 255) / 256 * 4; }

// Searches some segments for some queries, on one thread.
class TileTask {
 public:
  TileTask(const Search& search, const Plan& plan, ScanFn scan, Cancellation& cancellation, Range queries, Range places)
      : search_(search), plan_(plan), scan_(scan), cancellation_(cancellation), queries_(queries), places_(places),
        all_queries_(queries.size()), offsets_(search.n_active) {
    std::iota(all_queries_.begin(), all_queries_.end(), queries.begin);
    if (queries.size() >= min_batch)
      tile_words_ = std::clamp(batch_tile_words / search.n_bits / line_words * line_words, line_words, max_tile_words);
  }

  // The best documents of each query, in the order of the queries.
  std::vector<Best> run() {
    const bool guess = search_.k >= min_k_to_guess && plan_.n_docs(places_) >= min_tiles_to_guess * 64 * tile_words_;
    if (guess) return scan_guessing();
    std::vector<Best> best(queries_.size(), Best(search_.k, search_.n_active, 0));
    scan_segments(best, all_queries_, 1);
    return best;
  }

 private:
  // Guesses each query's threshold from a sample of tiles. Without a guess, every document is among the best at the
  // beginning, and many are kept and dropped later. If a query finds fewer than k documents because its guess was too
  // high, it is searched again without a guess.
  std::vector<Best> scan_guessing() {
    const std::size_t n_tiles = plan_.n_docs(places_) / (64 * tile_words_);
    const std::size_t step = std::clamp(n_tiles / sample_tiles, min_step, max_step);
    const double expected = static_cast<double>(search_.k) / static_cast<double>(step);
    const auto k = static_cast<std::size_t>(expected + 2.0 * std::sqrt(expected) + 1.0);
    std::vector<Best> sample(queries_.size(), Best(k, search_.n_active, 0)), best;
    scan_segments(sample, all_queries_, step);
    for (const Best& guess : sample)
      best.emplace_back(search_.k, search_.n_active, guess.complete() ? guess.threshold() - 1 : 0);
    scan_segments(best, all_queries_, 1);
    std::vector<std::size_t> repeated;
    for (const std::size_t q : all_queries_)
      if (Best& result = best[q - queries_.begin]; !result.complete() && result.threshold() > 0) {
        result = Best(search_.k, search_.n_active, 0);
        repeated.push_back(q);
      }
    scan_segments(best, repeated, 1);
    return best;
  }

  // Scans every step-th tile of the segments for some of the queries.
  void scan_segments(std::vector<Best>& best, const std::vector<std::size_t>& queries, std::size_t step) {
    std::size_t n_tiles = 0;
    for (std::size_t place = places_.begin; place < places_.end && !cancellation_.requested(); ++place) {
      const std::size_t n = queries.size(), share = n < min_batch ? 0 : (search_.n_bits + n - 1) / n;
      for (std::size_t word = 0; word < block_words(plan_.segment(place)); word += tile_words_) {
        if (n_tiles++ % step) continue;
        const Tile tile = tile_at(place, word), next = tile_after(place, word);
        const std::uint64_t slot = plan_.segment(place).first_slot + 64 * word;
        for (std::size_t i = 0; i < n; ++i) {
          if (share)
            prefetch_planes(next, {std::min(i * share, search_.n_bits), std::min((i + 1) * share, search_.n_bits)});
          else
            prefetch_query(next, query(queries[i]));
          scan_tile(tile, slot, query(queries[i]), best[queries[i] - queries_.begin]);
        }
      }
    }
  }

  const std::uint16_t* query(std::size_t q) const { return search_.queries + q * search_.n_active; }

  Tile tile_at(std::size_t place, std::size_t word) const {
    const Segment& segment = plan_.segment(place);
    const std::vector<std::uint64_t>& allowed = plan_.allowed(place);
    return {segment.planes + word, segment.stride, std::min(tile_words_, block_words(segment) - word),
            allowed.empty() ? all_allowed.data() : allowed.data() + word};
  }

  // The tile that is scanned next; one without words after the last.
  Tile tile_after(std::size_t place, std::size_t word) const {
    if (word + tile_words_ < block_words(plan_.segment(place))) return tile_at(place, word + tile_words_);
    return place + 1 == places_.end ? Tile{} : tile_at(place + 1, 0);
  }

  // In a batch, each query prefetches its share of all planes of the next tile into the L2 cache.
  POSH_INLINE static void prefetch_planes(const Tile& tile, Range planes) {
    for (std::size_t plane = planes.begin; plane < planes.end; ++plane)
      for (std::size_t i = 0; i < tile.n_words; i += line_words)
        __builtin_prefetch(tile.planes + plane * tile.stride + i, 0, 2);
  }

  // Without a batch, a query prefetches the planes that it will read itself.
  POSH_INLINE void prefetch_query(const Tile& tile, const std::uint16_t* query) const {
    for (std::size_t j = 0; j < search_.n_active; ++j)
      for (std::size_t i = 0; i < tile.n_words; i += line_words)
        __builtin_prefetch(tile.planes + query[j] * tile.stride + i);
  }

  void scan_tile(const Tile& tile, std::uint64_t slot, const std::uint16_t* query, Best& best) {
    if (best.threshold() > search_.n_active) return;  // no document can exceed the scores that it has
    best.prefetch();
    const std::size_t n =
        scan_(tile, query, search_.n_active, best.threshold(), search_.k, offsets_.data(), hits_.data());
    for (std::size_t i = 0; i < n; ++i) best.add(hits_[i].score, slot + hits_[i].position);
  }

  const Search& search_;
  const Plan& plan_;
  ScanFn scan_;
  Cancellation& cancellation_;
  Range queries_, places_;
  std::size_t tile_words_ = max_tile_words;
  std::vector<std::size_t> all_queries_;
  std::vector<std::uint32_t> offsets_;
  std::array<Hit, max_hits> hits_;
};

void write_results(const Best& best, std::size_t k, std::int64_t* ids, std::int32_t* scores) {
  std::fill(ids, ids + k, -1);
  std::fill(scores, scores + k, -1);
  best.each(k, [=](std::size_t rank, std::size_t score, std::uint64_t slot) {
    ids[rank] = static_cast<std::int64_t>(slot);
    scores[rank] = static_cast<std::int32_t>(score);
  });
}

}  // namespace

bool search_tiles(const Search& search, ScanFn scan, std::int64_t* ids, std::int32_t* scores) {
  const Plan plan(search);
  Cancellation cancellation(search.poll);
  // Threads divide the queries if there are many of them, and the segments otherwise.
  const std::size_t per_task = std::clamp(max_kept_at_once / search.k, std::size_t{1}, max_queries_at_once);
  const std::size_t n_ranges = std::max({std::size_t{1}, (search.n_queries + per_task - 1) / per_task,
                                         std::min(search.n_threads, search.n_queries / min_batch)});
  const std::size_t n_parts = std::clamp((search.n_threads + n_ranges - 1) / n_ranges, std::size_t{1},
                                         std::max<std::size_t>(1, search.n_segments));

  std::vector<std::vector<Best>> parts(n_parts > 1 ? n_ranges * n_parts : 0);
  run_tasks(n_ranges * n_parts, search.n_threads, cancellation, [&](std::size_t task) {
    const Range queries = nth_part(search.n_queries, task / n_parts, n_ranges);
    const Range places = nth_part(search.n_segments, task % n_parts, n_parts);
    std::vector<Best> best = TileTask(search, plan, scan, cancellation, queries, places).run();
    if (n_parts > 1) {
      parts[task] = std::move(best);
      return;
    }
    for (std::size_t q = queries.begin; q < queries.end; ++q)
      write_results(best[q - queries.begin], search.k, ids + q * search.k, scores + q * search.k);
  });
  if (cancellation.requested()) return false;

  for (std::size_t range = 0; n_parts > 1 && range < n_ranges; ++range) {
    const Range queries = nth_part(search.n_queries, range, n_ranges);
    for (std::size_t q = queries.begin; q < queries.end; ++q) {
      Best best(search.k, search.n_active, 0);
      for (std::size_t i = range * n_parts; i < (range + 1) * n_parts; ++i)
        parts[i][q - queries.begin].each(
            search.k, [&](std::size_t, std::size_t score, std::uint64_t slot) { best.add(score, slot); });
      write_results(best, search.k, ids + q * search.k, scores + q * search.k);
    }
  }
  return true;
}

}  // namespace posh
