// The search in a graph, written once for every instruction set.
//
// `Isa` supplies, in addition to the primitives of block_search.h:
//   std::int32_t dot(const std::int8_t* a, const std::int8_t* b, std::size_t n, std::int32_t b_sum)
//     the sum of a * b; numbers are from -127 to 127, n is a multiple of 64, b_sum is the sum of b
//   void fill_tables(const std::int8_t* steps, std::size_t n, std::uint8_t* tables)
//     for each four of n steps 16 bytes: entry e is the sum of steps[i] over the set bits i of e, minus the sum of the
//     negative ones
//   void add_codes(const std::uint8_t* codes, const std::uint8_t* tables, std::size_t n_rows, std::uint16_t* sums)
//     for each of 32 neighbours, the sum of the entries that its code selects
//   std::uint32_t estimate(const Group& group, const Product& product, float bound, float* estimates)
//     the distances of 32 neighbours; returns which of them are below the bound
// All integers, and all floats that results depend on, are the same for every Isa.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <vector>

#include "block_score.h"
#include "graph.h"
#include "keys.h"
#include "projection.h"
#include "threads.h"

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

constexpr float farthest = std::numeric_limits<float>::infinity();
constexpr std::uint32_t no_node = 0xFFFFFFFFu;
constexpr std::size_t n_ahead = 2;  // records that are fetched from memory while another one is visited
constexpr float open_margin =
    0.15f;  // until k nodes were visited, those up to (stop + margin) * an estimate are remembered
constexpr float least_near = 1.15f;      // nodes up to max(stop, this) * the k-th lowest distance are remembered
constexpr std::size_t most_visits = 64;  // for each vector to compare, so that many equal documents cannot take forever
constexpr std::size_t first_seen = 4096;  // places for nodes that a search has met: most of them stay empty

// The codes of 32 neighbours, and their sums.
struct Group {
  const std::uint16_t* sums;
  const std::uint8_t *adds, *factors;
  float add_low, add_step, factor_low, factor_step;  // add_low includes the distance of the node
};

// q · v = scale * (sum over a code) + offset.
struct Product {
  float scale, offset;
};

// Nodes to visit, the nearest first, and of equally near ones the one that was added first. A sorted array would be
// rewritten with every node, of which few are ever visited: they stay where they are added, in blocks of which the
// nearest node is known.
class Open {
 public:
  void reset() { n_ = n_ready_ = 0; }

  void add(const float* distances, const std::uint32_t* nodes, std::size_t n) {
    while (n_ready_ < n_ + n) start_block();
    for (std::size_t i = 0; i < n; ++i, ++n_) {
      float& nearest = nearest_[n_ / in_block];
      nearness_[n_] = -distances[i];
      nodes_[n_] = nodes[i];
      nearest = std::max(nearest, nearness_[n_]);
    }
  }

  // Takes the nearest node if its distance is at most `most`, otherwise returns no_node.
  template <class Isa>
  std::uint32_t take(float most) {
    if (n_ == 0) return no_node;
    const std::size_t block = Isa::largest(nearest_.data(), (n_ready_ + in_group - 1) / in_group * in_block);
    if (!(-nearest_[block] <= most) || nearest_[block] == lowest) return no_node;
    float* nearness = &nearness_[block * in_block];
    const std::size_t i = Isa::largest(nearness, in_block);
    nearness[i] = lowest;
    nearest_[block] = nearness[Isa::largest(nearness, in_block)];
    return nodes_[block * in_block + i];
  }

  // Appends the nodes up to a distance that were not taken.
  void collect(float most, std::vector<std::uint32_t>& nodes) const {
    for (std::size_t i = 0; i < n_; ++i)
      if (-nearness_[i] <= most && nearness_[i] != lowest) nodes.push_back(nodes_[i]);
  }

 private:
  static constexpr std::size_t in_block = 64, in_group = in_block * in_block;

  void start_block() {
    if (n_ready_ == nearness_.size()) {
      nearness_.resize(n_ready_ + in_group);
      nodes_.resize(n_ready_ + in_group);
      nearest_.resize(nearest_.size() + in_block);
    }
    if (n_ready_ % in_group == 0) std::fill_n(&nearest_[n_ready_ / in_block], in_block, lowest);
    std::fill_n(&nearness_[n_ready_], in_block, lowest);
    n_ready_ += in_block;
  }

  std::vector<float, LineAllocator<float>> nearness_, nearest_;  // minus distances, of nodes and of blocks
  std::vector<std::uint32_t> nodes_;
  std::size_t n_ = 0, n_ready_ = 0;
};

// The k lowest distances, ascending.
class Lowest {
 public:
  void reset(std::size_t k) {
    k_ = k;
    values_.assign(1 + (k + in_block - 1) / in_block * in_block, farthest);
    values_[0] = lowest;
    next_ = values_;
  }

  void add(float distance) {
    const float* __restrict from = values_.data();
    float* __restrict to = next_.data();
    for (std::size_t first = 1; first < values_.size(); first += in_block)
      for (std::size_t i = first; i < first + in_block; ++i) to[i] = std::min(from[i], std::max(from[i - 1], distance));
    values_.swap(next_);
  }

  float last() const { return values_[k_]; }

 private:
  static constexpr std::size_t in_block = 16;  // the compiler makes few instructions of a block
  std::size_t k_ = 0;
  std::vector<float> values_, next_;  // after a number that is below all
};

// The nodes that a search has met: a hash table that grows.
class Seen {
 public:
  void reset() {
    if (places_.size() != first_seen) places_.resize(first_seen);
    std::fill(places_.begin(), places_.end(), no_node);
    n_ = 0;
    shift_ = 32 - 12;
    static_assert(first_seen == std::size_t{1} << 12);
  }

  // Returns whether the node is new.
  bool add(std::uint32_t node) {
    const bool is_new = insert(node);
    n_ += is_new;
    if (2 * n_ > places_.size()) grow();
    return is_new;
  }

 private:
  bool insert(std::uint32_t node) {
    const std::size_t mask = places_.size() - 1;
    std::size_t at = node * 2654435769u >> shift_;
    while (places_[at] != no_node && places_[at] != node) at = (at + 1) & mask;
    const bool is_new = places_[at] == no_node;
    places_[at] = node;
    return is_new;
  }

  void grow() {
    std::vector<std::uint32_t> before(2 * places_.size(), no_node);
    before.swap(places_);
    --shift_;
    for (const std::uint32_t node : before)
      if (node != no_node) insert(node);
  }

  std::vector<std::uint32_t> places_;
  std::size_t n_ = 0;
  unsigned shift_ = 0;
};

struct Reached {
  float distance;
  std::uint32_t node;
  bool operator<(const Reached& other) const {
    return distance < other.distance || (distance == other.distance && node < other.node);
  }
};

struct GraphWorkspace {
  std::vector<float> centred, columns, routed;
  std::vector<std::int8_t> features, numbers, steps;
  float units[4];  // of the queries of a tile
  std::vector<std::uint8_t> tables;
  Open open;
  Lowest distances, estimates;
  Seen seen;
  std::vector<Reached> reached;
  std::vector<std::uint32_t> rest;
  Workspace exact;
};

inline thread_local GraphWorkspace graph_workspace_of_thread;

template <class Isa>
class GraphSearcher {
 public:
  GraphSearcher(const GraphSearch& search, std::int64_t* ids, float* scores)
      : s(search), g(*search.graph), w(graph_workspace_of_thread), last_search(make_last_search(search)),
        last_step(last_search, w.exact), ids(ids), scores(scores) {
    reserve(w.exact.queries, 1);
    reserve(w.exact.kept, last_search.n_keep);
    const std::size_t n = g.shape.n_columns;
    reserve(w.centred, g.n_features);
    w.features.assign(tile * ((g.n_features + 3) / 4 * 4), 0);
    reserve(w.columns, tile * n);
    reserve(w.numbers, tile * n);
    reserve(w.steps, n * g.shape.n_bits);
    reserve(w.tables, g.shape.n_rows() * 16);
    reserve(w.routed, tile * 8 * g.entry_router->n_groups());
  }

  // Searches for the queries begin, …, end - 1, at most `tile`.
  void run(std::size_t begin, std::size_t end) {
    prepare(begin, end - begin);
    for (std::size_t row = begin; row < end; ++row) {
      choose(row - begin);
      w.open.reset();
      w.distances.reset(s.k);
      w.estimates.reset(s.k);
      w.seen.reset();
      w.reached.clear();
      skipped = s.skipped ? s.skipped[row] : -1;
      enter();
      const std::size_t n_visited = walk();
      if (s.n_visited) s.n_visited[row] = static_cast<std::uint32_t>(n_visited);
      finish(row, s.queries + row * g.n_features);
    }
  }

  static constexpr std::size_t tile = 4;  // queries that are prepared together
  static_assert(sizeof GraphWorkspace::units == tile * sizeof(float));

 private:
  static BlockSearch make_last_search(const GraphSearch& s) {
    BlockSearch search{};
    search.k = s.k;
    search.n_keep = s.n_keep + s.n_slots - s.first_new;
    search.stored = s.stored;
    search.vectors = s.vectors;
    search.n_slots = s.n_slots;
    search.n_features = s.graph->n_features;
    search.is_distance = s.is_distance;
    return search;
  }

  // Transforms queries first, …, first + n - 1, quantises them, and routes them to the entry points.
  void prepare(std::size_t first, std::size_t n) {
    const std::size_t d = g.n_features, stride = (d + 3) / 4 * 4, n_columns = g.shape.n_columns;
    for (std::size_t i = 0; i < n; ++i) {
      const float* query = s.queries + (first + i) * d;
      float factor = 1.0f;
      if (g.transform.radius > 0.0f) {
        const float length = std::sqrt(Isa::product(query, query, d));
        factor = length > 0.0f ? g.transform.radius / length : 0.0f;
      }
      for (std::size_t j = 0; j < d; ++j) w.centred[j] = factor * query[j] - g.transform.mean[j];
      w.units[i] = quantise(w.centred.data(), d, &w.features[i * stride]);
    }
    Isa::route(*g.transform.rows, {w.features.data(), stride, w.units, n}, w.columns.data());
    for (std::size_t i = 0; i < n; ++i) {
      float* columns = &w.columns[i * n_columns];
      for (std::size_t j = 0; j < n_columns; ++j) columns[j] += g.transform.bias[j];
      w.units[i] = quantise(columns, n_columns, &w.numbers[i * n_columns]);
    }
    Isa::route(*g.entry_router, {w.numbers.data(), n_columns, w.units, n}, w.routed.data());
  }

  // Makes a prepared query the current one, and fills the tables for codes.
  void choose(std::size_t i) {
    const std::size_t n = g.shape.n_columns;
    numbers = &w.numbers[i * n];
    columns = &w.columns[i * n];
    routed = &w.routed[i * 8 * g.entry_router->n_groups()];
    unit = w.units[i];
    sum = 0;
    std::int32_t squares = 0;
    for (std::size_t j = 0; j < n; ++j) {
      sum += numbers[j];
      squares += numbers[j] * numbers[j];
    }
    norm = unit * unit * static_cast<float>(squares);
    g.shape.n_bits == 1 ? prepare_tables<1>() : prepare_tables<2>();
  }

  // Steps are so small that the largest entry of a table fits into a byte: four columns of one bit, or two of two bits,
  // which count once and twice.
  template <int n_bits>
  void prepare_tables() {
    const std::size_t n = g.shape.n_columns;
    constexpr std::size_t at_once = 4 / n_bits;
    float largest = 0.0f;
    for (std::size_t j = 0; j < n; j += at_once) {
      float size = 0.0f;
      for (std::size_t i = 0; i < at_once; ++i) size += std::fabs(columns[j + i]);
      largest = std::max(largest, size);
    }
    constexpr float n_steps = n_bits == 1 ? 250.0f : 250.0f / 3.0f;  // rounding may add two
    constexpr std::int32_t most = n_bits == 1 ? 127 : 63;
    float step = largest / n_steps;
    if (!(step >= smallest_unit)) step = 1.0f;
    const float inverse = 1.0f / step;
    std::int32_t all = 0, negative = 0;
    const float* __restrict from = columns;
    std::int8_t* __restrict steps = w.steps.data();
    for (std::size_t j = 0; j < n; ++j) {
      const auto rounded = static_cast<std::int32_t>(std::nearbyint(from[j] * inverse));  // at most n_steps + 1
      const std::int32_t number = std::max(-most, std::min(most, rounded));
      all += number;
      negative += std::min(number, 0);
      steps[n_bits * j] = static_cast<std::int8_t>(number);
      if (n_bits == 2) steps[n_bits * j + 1] = static_cast<std::int8_t>(2 * number);
    }
    Isa::fill_tables(steps, n * n_bits, w.tables.data());
    const auto total = static_cast<float>(all), below = static_cast<float>(negative);
    product = n_bits == 1 ? Product{2.0f * step, step * (2.0f * below - total)}
                          : Product{step, step * (3.0f * below - 1.5f * total)};
  }

  // Opens the nearest entry point.
  void enter() {
    if (skipped >= 0)
      for (std::size_t i = 0; i < g.n_entries; ++i)
        if (is_skipped(g.entries[i])) routed[i] = lowest;
    const std::size_t nearest = Isa::largest(routed, g.n_entries);
    const std::uint32_t node = g.entries[nearest];
    w.seen.add(node);
    const float distance = norm - 2.0f * routed[nearest];
    if (distance < farthest) w.open.add(&distance, &node, 1);
  }

  // Visits nodes; returns their number. Records of the next nodes are on their way while one is visited.
  std::size_t walk() {
    std::uint32_t ahead[n_ahead + 1];
    std::size_t n_waiting = 0, first = 0, n_visited = 0;
    for (;;) {
      const bool may_visit = n_visited + n_waiting < most_visits * s.n_keep;
      const std::uint32_t node = may_visit ? w.open.template take<Isa>(s.stop * limit()) : no_node;
      if (node != no_node) {
        prefetch(node);
        ahead[(first + n_waiting++) % (n_ahead + 1)] = node;
        if (n_waiting <= n_ahead) continue;
      }
      if (!n_waiting) return n_visited;
      visit(ahead[first]);
      ++n_visited;
      first = (first + 1) % (n_ahead + 1);
      --n_waiting;
    }
  }

  // The k-th lowest distance so far.
  float limit() const { return w.distances.last(); }

  // Nodes that are not visited are compared at the end up to this distance.
  float near_limit() const { return std::max(s.stop, least_near) * limit(); }

  // Nodes that are farther are not worth remembering. Until k nodes are visited, their estimates are all that is known.
  float bound() const { return std::min(near_limit(), (s.stop + open_margin) * w.estimates.last()); }

  const std::uint8_t* record(std::uint32_t node) const { return g.records + node * g.shape.stride(); }

  void prefetch(std::uint32_t node) const { prefetch_bytes(record(node), g.shape.stride()); }

  GraphHead head_of(const std::uint8_t* from) const {
    GraphHead head;
    std::memcpy(&head, from + g.shape.head(), sizeof head);
    return head;
  }

  float distance(const std::uint8_t* from, const GraphHead& head) const {
    const std::int32_t dot = Isa::dot(reinterpret_cast<const std::int8_t*>(from), numbers, g.shape.n_columns, sum);
    return norm + head.norm - 2.0f * (head.scale * unit) * static_cast<float>(dot);
  }

  void visit(std::uint32_t node) {
    const std::uint8_t* from = record(node);
    const GraphHead head = head_of(from);
    const float own = distance(from, head);
    reach(node, own);
    for (std::size_t group = 0; group < g.shape.n_groups(); ++group) {
      alignas(64) std::uint16_t sums[graph_group];
      alignas(64) float estimates[graph_group];
      Isa::add_codes(from + g.shape.codes() + group * g.shape.n_rows() * 16, w.tables.data(), g.shape.n_rows(), sums);
      const std::size_t at = group * graph_group;
      const Group neighbours{sums,
                             from + g.shape.adds() + at,
                             from + g.shape.factors() + at,
                             own + head.add_low,
                             head.add_step,
                             head.factor_low,
                             head.factor_step};
      std::uint32_t near = Isa::estimate(neighbours, product, bound(), estimates);
      const std::size_t n = head.n_neighbours > at ? head.n_neighbours - at : 0;
      if (n < graph_group) near &= (std::uint32_t{1} << n) - 1;
      open_neighbours(from + g.shape.nodes() + at * sizeof(std::uint32_t), near, estimates);
    }
  }

  void open_neighbours(const std::uint8_t* nodes, std::uint32_t near, const float* estimates) {
    float distances[graph_group];
    std::uint32_t fresh[graph_group];
    std::size_t n = 0;
    for (; near; near &= near - 1) {  // without a branch on what is new, which could not be predicted
      const auto i = static_cast<std::size_t>(__builtin_ctz(near));
      std::memcpy(&fresh[n], nodes + i * sizeof *fresh, sizeof *fresh);
      distances[n] = estimates[i];
      if (fresh[n] < g.n_nodes && !is_skipped(fresh[n])) n += w.seen.add(fresh[n]);
    }
    w.open.add(distances, fresh, n);
    for (std::size_t i = 0; i < n; ++i)
      if (distances[i] < w.estimates.last() && is_live(fresh[i])) w.estimates.add(distances[i]);
  }

  // Remembers a visited document as a result.
  void reach(std::uint32_t node, float distance) {
    if (!(distance < farthest) || !is_live(node)) return;
    w.reached.push_back({distance, node});
    if (distance < limit()) w.distances.add(distance);
  }

  bool is_skipped(std::uint32_t node) const { return skipped >= 0 && g.slots[node] == skipped; }

  bool is_live(std::uint32_t node) const { return !s.live || s.live[slot_of(node)]; }

  std::uint32_t slot_of(std::uint32_t node) const {
    const std::uint32_t slot = g.slots[node];
    if (slot >= s.n_slots) throw std::out_of_range("graph: slots");
    return slot;
  }

  void finish(std::size_t row, const float* query) {
    reach_open();
    const std::size_t n = std::min(s.n_keep, w.reached.size());
    if (n < w.reached.size()) std::nth_element(w.reached.begin(), w.reached.begin() + n, w.reached.end());
    for (std::size_t i = 0; i < n; ++i)
      w.exact.kept[i] = {score_key(-w.reached[i].distance, slot_of(w.reached[i].node)), 0, 0};
    std::size_t n_kept = n;
    for (std::size_t slot = s.first_new; slot < s.n_slots; ++slot)
      if (!s.live || s.live[slot]) w.exact.kept[n_kept++] = {score_key(0.0f, static_cast<std::uint32_t>(slot)), 0, 0};
    Query& found = w.exact.queries[0];
    found.n_kept = static_cast<std::uint32_t>(n_kept);
    found.index = 0;
    last_step.prefetch(found);
    last_step.finish(found, query, ids + row * s.k, scores + row * s.k);
  }

  // Computes the distances of near nodes that were not visited.
  void reach_open() {
    w.rest.clear();
    w.open.collect(near_limit(), w.rest);
    for (const std::uint32_t node : w.rest) {
      prefetch_bytes(record(node), g.shape.n_columns);
      prefetch_line(record(node) + g.shape.head());
    }
    for (const std::uint32_t node : w.rest) {
      const float own = distance(record(node), head_of(record(node)));
      if (own < farthest && is_live(node)) w.reached.push_back({own, node});
    }
  }

  const GraphSearch& s;
  const Graph& g;
  GraphWorkspace& w;
  const BlockSearch last_search;
  ExactScoring<Isa> last_step;
  std::int64_t* ids;
  float* scores;
  const std::int8_t* numbers = nullptr;  // of the current query, which is unit * numbers
  const float* columns = nullptr;
  float* routed = nullptr;
  float unit = 0.0f, norm = 0.0f;
  std::int32_t sum = 0;
  Product product{};
  std::int64_t skipped = -1;
};

template <class Isa>
bool search_graph(const GraphSearch& search, std::int64_t* ids, float* scores) {
  Cancellation cancellation(search.poll);
  constexpr std::size_t part = 64, tile = GraphSearcher<Isa>::tile;
  const std::size_t n_parts = (search.n_queries + part - 1) / part;
  run_tasks(n_parts, search.n_threads, cancellation, [&](std::size_t task) {
    GraphSearcher<Isa> searcher(search, ids, scores);
    const std::size_t end = std::min(search.n_queries, (task + 1) * part);
    for (std::size_t row = task * part; row < end && !cancellation.requested(); row += tile)
      searcher.run(row, std::min(row + tile, end));
  });
  return !cancellation.requested();
}

}  // namespace
}  // namespace posh
