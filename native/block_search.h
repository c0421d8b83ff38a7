// The search in blocks, written once for every instruction set. block_prepare.h prepares queries, block_score.h scans
// and scores; this header decides in which order queries visit blocks.
//
// Files for an instruction set include all standard headers, blocks.h, kernels.h and keys.h before the region for that
// instruction set: see avx2_begin.h.
//
// `Isa` supplies:
//   void route(const Router&, const Routed& queries, float* scores)
//     the routing scores of all lists for each query, n_groups() * 8 numbers for each
//   std::size_t largest(const float* scores, std::size_t n)
//     the first position of the highest score
//   void masks(const BlockScan&, std::uint64_t* masks)
//     writes 4 words for each group of a block: a bit is set if its document reaches the group's threshold
//   std::uint32_t* expand(const std::uint64_t* mask, std::uint32_t first, std::uint32_t* to)
//     writes first + i for each set bit i of 256; returns the end. May write `spare` elements past it.
//   std::int32_t half_sum(const std::uint8_t* halves, const std::int8_t* numbers, std::size_t width, std::size_t tail)
//     the sum of half * number over all columns; see BlockShape
//   unsigned above(const std::uint8_t* const (&halves)[4], const Query* const (&queries)[4], const Fit (&fits)[4], …)
//     the same for four documents, and which of them may be good enough
//   float product(const float* a, const float* b, std::size_t n), float distance(…)
//     the sum of a * b, and of (a - b)²; additions are in the order of eight_sums
//   void products<n_rows, n_vectors>(rows, vectors, std::size_t n, float (&sums)[n_vectors][n_rows])
//     the product of each vector with each row
//   void distances(const float* const (&rows)[4], const float* vector, std::size_t n, float (&sums)[4])
//     the distance of a vector to each row
//   void hadamard(float* values, std::size_t n)
//     the Walsh-Hadamard transform in place: hadamard_from(1, values, n)
// All integers, and all floats that results depend on, are the same for every Isa.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "block_prepare.h"
#include "block_score.h"
#include "block_state.h"
#include "threads.h"

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

constexpr std::size_t max_visits = 1024;                      // queries that scan a block together: bounds the memory
constexpr std::size_t max_kept_bytes = std::size_t{1} << 24;  // of a workspace that its thread keeps between searches

inline thread_local Workspace workspace_of_thread;

template <class Isa>
class BlockSearcher {
 public:
  BlockSearcher(const BlockSearch& search, std::int64_t* ids, float* scores)
      : s(search), shape(search.lists->shape), w(workspace_of_thread), preparation(search, w), scoring(search, w),
        last_step(search, w), ids(ids), scores(scores) {}

  ~BlockSearcher() {
    if (w.bytes() > max_kept_bytes) w = {};
  }

  // Searches for the queries begin, …, end - 1. Returns false if cancelled.
  bool run(std::size_t begin, std::size_t end, Cancellation& cancellation) {
    return search_each(begin, end, cancellation, [&](Query& query, std::size_t row) {
      last_step.finish(query, s.queries + row * s.n_features, ids + row * s.k, scores + row * s.k);
    });
  }

  // The same for all documents that reach the bounds; found (n_queries) gets their keys.
  bool run_radius(std::size_t begin, std::size_t end, std::vector<std::uint64_t>* found, Cancellation& cancellation) {
    return search_each(begin, end, cancellation, [&](Query& query, std::size_t row) {
      last_step.finish_all(query, s.queries + row * s.n_features, s.bounds[row], found[row]);
    });
  }

  void routing_scores(float* to) { preparation.routing_scores(to); }

  void sample_counts(std::size_t n_samples, std::uint64_t seed, float* expected, float* counts) {
    preparation.prepare(0, s.n_queries);
    for (std::size_t q = 0; q < s.n_queries; ++q)
      for (std::size_t i = 0; i < n_samples; ++i, ++expected, ++counts) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        *expected = *counts = std::numeric_limits<float>::quiet_NaN();
        const Probes probes = preparation.probes_of(w.queries[q]);
        const std::size_t probe = (seed >> 33) % probes.n;
        const std::uint16_t list = probes.lists[probe];
        const std::uint32_t first = s.lists->first[list], n_blocks = s.lists->first[list + 1] - first;
        if (!n_blocks) continue;
        const Block& block = s.lists->blocks[first + (seed >> 20) % n_blocks];
        const View view = near_view(w.queries[q], {list, probes.scores[probe]}, w.near[0]);
        sample_count(view, block, (seed >> 10) % block.n_groups, *expected, *counts);
      }
  }

 private:
  // Calls finish(query, row) for each query, when its candidates are known.
  template <class Finish>
  bool search_each(std::size_t begin, std::size_t end, Cancellation& cancellation, Finish finish) {
    const std::size_t n = end - begin;
    preparation.prepare(begin, n);
    const float n_visits = static_cast<float>(w.first_probe[n]);
    const bool by_list = n_visits >= s.min_shared * static_cast<float>(s.lists->n_lists());
    if (by_list && !visit_lists(n, cancellation)) return false;
    for (std::size_t i = 0; i < n; ++i) {
      if (cancellation.requested()) return false;
      Query& query = w.queries[i];
      if (!by_list) visit_probes(query, preparation.probes_of(query));
      repeat_if_needed(query);
      if (!by_list) last_step.prefetch(query);
      if (by_list && i + 1 < n) last_step.prefetch(w.queries[i + 1]);
      finish(query, begin + i);
    }
    return true;
  }

  void sample_count(const View& view, const Block& block, std::size_t group, float& expected, float& count) const {
    const std::uint64_t* live = block.live.get();
    float best = lowest;
    std::size_t best_doc = 0;
    for (std::size_t doc = group * group_docs; doc < std::min<std::size_t>(block.n_docs, (group + 1) * group_docs);
         ++doc) {
      if (!(live[doc / 64] >> doc % 64 & 1)) continue;
      const float score = scoring.product(view, block, doc) + block.fits(shape)[doc].offset;
      if (score > best) best = score, best_doc = doc;
    }
    const float length = best == lowest ? 0.0f : scoring.length(block, best_doc);
    if (!(length > 0.0f)) return;
    const std::size_t n_planes = s.n_plus + s.n_minus;
    const std::uint32_t* bits = view.planes;
    std::size_t n = 0;
    for (std::size_t j = 0; j < n_planes; ++j) {
      const std::uint8_t byte = block.planes()[bits[j] * block.n_groups * group_bytes + best_doc / 8];
      n += (byte >> best_doc % 8 & 1) == (j < s.n_plus);
    }
    expected = scoring.product(view, block, best_doc) * view.reach / length;
    count = static_cast<float>(n) - scoring.expected_count();
  }

  // All queries, list by list -------------------------------------------------------------------------

  // Visits list after list, each for all its queries. A query visits its lists in the same order as it would alone.
  bool visit_lists(std::size_t n_queries, Cancellation& cancellation) {
    sort_visits(n_queries);
    const std::size_t n_lists = s.lists->n_lists();
    const std::vector<std::size_t>& starts = w.visit_starts;
    for (std::size_t list = 0; list < n_lists; ++list) {
      const std::size_t n = starts[list + 1] - starts[list];
      if (!n) continue;
      if (cancellation.requested()) return false;
      const Visit* visitors = &w.visits[starts[list]];
      enter_list(list, visitors, n);
      std::size_t next = list + 1;
      while (next < n_lists && starts[next] == starts[next + 1]) ++next;
      const std::uint32_t stop = s.lists->first[list + 1];
      for (std::uint32_t b = s.lists->first[list]; b < stop; ++b) {
        const std::uint32_t following = b + 1 < stop ? b + 1 : next < n_lists ? s.lists->first[next] : b;
        for (std::size_t at = 0; at < n; at += max_visits)
          visit_block(b, std::min<std::size_t>(following, s.lists->blocks.size() - 1), visitors + at,
                      std::min(max_visits, n - at));
      }
    }
    return true;
  }

  // Sets the views of a list's visitors. Queries are in one list at a time, so for distances the views use the buffers
  // of the queries themselves.
  void enter_list(std::size_t list, const Visit* visitors, std::size_t n) {
    constexpr std::size_t tile = BlockPreparation<Isa>::tile;
    for (std::size_t at = 0; at < n; at += tile)
      preparation.enter(
          list, std::min(tile, n - at), &w.numbers[at * shape.width()], &w.planes[at * (s.n_plus + s.n_minus)],
          [&](std::size_t i) -> const Query& { return w.queries[visitors[at + i].query]; },
          [&](std::size_t i) { return visitors[at + i].list_score; },
          [&](std::size_t i) -> View& { return w.queries[visitors[at + i].query].view; });
  }

  // Sorts the visits of all queries by list.
  void sort_visits(std::size_t n_queries) {
    const std::size_t n_lists = s.lists->n_lists(), n_visits = w.first_probe[n_queries];
    std::vector<std::size_t>& starts = w.visit_starts;
    starts.assign(n_lists + 2, 0);
    for (std::size_t j = 0; j < n_visits; ++j) ++starts[w.probes[j] + 2];
    for (std::size_t l = 0; l < n_lists; ++l) starts[l + 2] += starts[l + 1];
    reserve(w.visits, n_visits);
    for (std::size_t query = 0; query < n_queries; ++query)
      for (std::size_t j = w.first_probe[query]; j < w.first_probe[query + 1]; ++j)
        w.visits[starts[w.probes[j] + 1]++] = {static_cast<std::uint32_t>(query), w.list_scores[j]};
  }

  void visit_block(std::uint32_t number, std::size_t next_number, const Visit* visitors, std::size_t n) {
    const Block& block = s.lists->blocks[number];
    const std::size_t n_groups = block.n_groups, n_planes = s.n_plus + s.n_minus;
    const std::uint64_t* live = scoring.live_words(number);
    if (!live) return;
    std::uint64_t* mask = reserve(w.masks, 4 * max_groups);
    std::uint32_t *const pairs = reserve(w.pairs, n * block.n_docs + spare), *end = pairs;
    // Each query prefetches a part of the next block: planes, and the high halves if enough queries share them.
    const Block& next = s.lists->blocks[next_number];
    const std::size_t wanted = n >= 16 ? next.low(shape) - next.planes() : next.high(shape) - next.planes();
    __builtin_prefetch(next.live.get());
    const std::size_t share = (n >= 4 ? wanted / 64 / n + 1 : 0) * 64;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t at = i * share; at < std::min(wanted, (i + 1) * share); at += 64)
        __builtin_prefetch(next.planes() + at, 0, 2);
      Query& query = w.queries[visitors[i].query];
      if (i + 2 < n)
        for (std::size_t j = 0; j < n_planes; j += 16)
          __builtin_prefetch(w.queries[visitors[i + 2].query].view.planes + j);
      scoring.scan(block, query, scoring.rows_for(query.view, n_groups, w.rows), nullptr, nullptr, mask);
      end = scoring.expand(mask, live, n_groups, static_cast<std::uint32_t>(i << doc_bits), end);
      query.scan_limit = query.limit;
    }
    scoring.score(number, pairs, static_cast<std::size_t>(end - pairs),
                  [&](std::uint32_t i) { return &w.queries[visitors[i].query]; });
  }

  // One query ------------------------------------------------------------------------------------------

  void visit_probes(Query& query, const Probes& probes) {
    w.stops.clear();
    w.visited.clear();
    for (std::size_t j = 0; j < probes.n; ++j) add_stops(probes, j);
    visit_stops(query);
  }

  // Appends the blocks of a list in which some document may be found.
  void add_stops(const Probes& probes, std::size_t j) {
    const std::uint16_t list = probes.lists[j];
    const auto place = static_cast<std::uint32_t>(w.visited.size());
    for (std::uint32_t b = s.lists->first[list]; b < s.lists->first[list + 1]; ++b)
      if (scoring.live_words(b)) w.stops.push_back({b, place});
    if (!w.stops.empty() && w.stops.back().list == place) w.visited.push_back({list, probes.scores[j]});
  }

  // Scores the candidates of a block after the next block is scanned, so that their memory is prefetched by then. The
  // scan of a block also prefetches the rows of the next one. So a query may be in three lists at once.
  void visit_stops(Query& query) {
    if (w.stops.empty()) return;
    std::uint64_t* mask = reserve(w.masks, 4 * max_groups);
    std::fill(std::begin(w.near[0].has_rows), std::end(w.near[0].has_rows), false);
    near_view(query, w.visited[0], w.near[0]);
    std::size_t n_entered = 1;
    Waiting waiting;
    for (std::size_t at = 0; at < w.stops.size(); ++at) {
      const auto [number, place] = w.stops[at];
      const Block& block = s.lists->blocks[number];
      const bool is_last = at + 1 == w.stops.size();
      const Stop following = w.stops[is_last ? at : at + 1];
      if (following.list == n_entered) near_view(query, w.visited[n_entered++], w.near[following.list % n_near]);
      const Block& next = s.lists->blocks[following.block];
      __builtin_prefetch(next.live.get());
      query.view = w.near[place % n_near].view;
      query.scan_limit = query.limit;
      scoring.scan(block, query, rows_of_width(place, block.n_groups), is_last ? nullptr : &next,
                   rows_of_width(following.list, next.n_groups), mask);
      std::uint32_t* docs = reserve(w.pairs, block.n_docs + spare);
      const std::uint32_t* end = scoring.expand(mask, scoring.live_words(number), block.n_groups, 0, docs);
      const std::uint8_t* high = block.high(shape);
      const Column<const Fit> fits = block.fits(shape);
      const std::size_t stride = shape.high_stride();
      const bool is_joined = shape.is_joined();
      for (const std::uint32_t* doc = docs; doc < end; ++doc) {
        __builtin_prefetch(high + *doc * stride);
        if (!is_joined) __builtin_prefetch(&fits[*doc]);
      }
      score_waiting(query, waiting);
      waiting = {number, static_cast<std::size_t>(end - docs), w.near[place % n_near].view};
      std::swap(w.pairs, w.waiting_docs);
    }
    score_waiting(query, waiting);
  }

  // A block whose documents in w.waiting_docs are not scored yet.
  struct Waiting {
    std::uint32_t block = 0;
    std::size_t n = 0;
    View view{};
  };

  void score_waiting(Query& query, const Waiting& waiting) {
    if (!waiting.n) return;
    query.view = waiting.view;
    scoring.score(waiting.block, w.waiting_docs.data(), waiting.n, [&](std::uint32_t) { return &query; });
  }

  // Writes the view of a query in a list.
  const View& near_view(const Query& query, const ListScore& visit, Near& near) {
    if (s.is_distance) std::fill(std::begin(near.has_rows), std::end(near.has_rows), false);
    preparation.enter(
        visit.list, 1, reserve(near.numbers, shape.width()), reserve(near.planes, s.n_plus + s.n_minus),
        [&](std::size_t) -> const Query& { return query; }, [&](std::size_t) { return visit.score; },
        [&](std::size_t) -> View& { return near.view; });
    return near.view;
  }

  // The rows of a query in the list at this place of its visits. Products have the same rows in all lists.
  const std::uint32_t* rows_of_width(std::size_t place, std::size_t n_groups) {
    Near& near = w.near[s.is_distance ? place % n_near : 0];
    std::vector<std::uint32_t>& rows = near.rows_by_width[n_groups];
    if (near.has_rows[n_groups]) return rows.data();
    near.has_rows[n_groups] = true;
    return scoring.rows_for(near.view, n_groups, rows);
  }

  // Repeats a query if its first limit was too high, or if its lists have too few documents.
  void repeat_if_needed(Query& query) {
    if (s.has_first && query.n_kept < s.k) start_again(query, preparation.probes_of(query));
    for (std::size_t n = preparation.probes_of(query).n; query.n_kept < s.k && n < s.lists->n_lists();) {
      n = std::min(4 * n, s.lists->n_lists());
      start_again(query, preparation.best_probes(query, n));
    }
  }

  void start_again(Query& query, const Probes& probes) {
    query.n_kept = 0;
    query.limit = query.entry = query.scan_limit = lowest;
    visit_probes(query, probes);
  }

  const BlockSearch& s;
  const BlockShape& shape;
  Workspace& w;
  BlockPreparation<Isa> preparation;
  BlockScoring<Isa> scoring;
  ExactScoring<Isa> last_step;
  std::int64_t* ids;
  float* scores;
};

// Calls search(searcher, begin, end, cancellation) for parts of the queries. Returns false if poll asked to stop.
template <class Isa, class Search>
bool search_parts(const BlockSearch& search, std::int64_t* ids, float* scores, Search search_part) {
  Cancellation cancellation(search.poll);
  constexpr std::size_t most = 8192;  // bounds the memory; more queries that share a list are faster
  const std::size_t even = (search.n_queries + search.n_threads - 1) / search.n_threads;
  const std::size_t part = std::max<std::size_t>(1, std::min(most, even));
  run_tasks((search.n_queries + part - 1) / part, search.n_threads, cancellation, [&](std::size_t task) {
    BlockSearcher<Isa> searcher(search, ids, scores);
    search_part(searcher, task * part, std::min(search.n_queries, (task + 1) * part), cancellation);
  });
  return !cancellation.requested();
}

template <class Isa>
bool search_blocks(const BlockSearch& search, std::int64_t* ids, float* scores) {
  return search_parts<Isa>(search, ids, scores,
                           [](auto& searcher, std::size_t begin, std::size_t end, Cancellation& cancellation) {
                             searcher.run(begin, end, cancellation);
                           });
}

template <class Isa>
bool search_radius(const BlockSearch& search, std::vector<std::uint64_t>* found) {
  return search_parts<Isa>(search, nullptr, nullptr,
                           [=](auto& searcher, std::size_t begin, std::size_t end, Cancellation& cancellation) {
                             searcher.run_radius(begin, end, found, cancellation);
                           });
}

template <class Isa>
void compute_routing_scores(const BlockSearch& search, float* scores) {
  BlockSearcher<Isa>(search, nullptr, nullptr).routing_scores(scores);
}

template <class Isa>
void compute_sample_counts(const BlockSearch& search, std::size_t n_groups, std::uint64_t seed, float* expected,
                           float* counts) {
  BlockSearcher<Isa>(search, nullptr, nullptr).sample_counts(n_groups, seed, expected, counts);
}

}  // namespace
}  // namespace posh
