// Builds a graph: chooses the neighbours of each node among its candidates, and writes the records. An extension does
// so for new nodes of a graph: a graph that is built is the extension of an empty one.
//
// The neighbours of a node are near it and in different directions: a candidate is left out if it is much nearer to a
// neighbour that was chosen before. Every edge is then offered to its other end, and nodes with too few edges that lead
// to them take the places of less important ones. An old node that is offered edges chooses among these and its own.
// Last, parts of the graph that cannot be reached get an edge that leads to them. See graph_search.h for `Isa`.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "graph.h"
#include "graph_search.h"
#include "projection.h"
#include "threads.h"

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

constexpr std::size_t build_part = 256;                        // nodes that a thread takes at once
constexpr std::size_t most_offers = 400;                       // edges from other nodes that a node considers
constexpr std::uint32_t least_edges = 2;                       // edges that lead to a node
constexpr std::uint32_t enough_edges = 3;                      // nodes with more can spare one
constexpr std::size_t most_columns = 1024, most_degree = 128;  // see GraphShape::is_valid

template <class Isa>
class GraphBuilder {
 public:
  GraphBuilder(const GraphPlan& plan, std::uint8_t* records)
      : p(plan), n(plan.n_nodes), degree(plan.shape.degree), records(records), cancellation(plan.poll) {}

  bool run() {
    sums.resize(n);
    scales.resize(n);
    norms.resize(n);
    lost.resize(n);
    edges.resize(n * degree);
    n_edges.assign(n, 0);
    is_changed.assign(n, 0);
    each_node(0, p.n_old, [&](std::size_t node) { read_record(node); });
    each_node(p.n_old, n, [&](std::size_t node) { quantise_node(node); });
    each_node(p.n_old, n, [&](std::size_t node) { choose_first(node); });
    if (cancellation.requested()) return false;
    collect_offers();
    each_node(0, n, [&](std::size_t node) { choose_again(node); });
    if (cancellation.requested()) return false;
    link_lonely();
    connect();
    each_node(0, n, [&](std::size_t node) {
      if (is_changed[node]) write_record(node);
    });
    return !cancellation.requested();
  }

 private:
  template <class Work>
  void each_node(std::size_t begin, std::size_t end, Work work) {
    run_tasks((end - begin + build_part - 1) / build_part, p.n_threads, cancellation, [&](std::size_t task) {
      const std::size_t first = begin + task * build_part;
      if (cancellation.requested()) return;
      for (std::size_t node = first; node < std::min(end, first + build_part); ++node) work(node);
    });
  }

  bool is_old(std::size_t node) const { return node < p.n_old; }
  std::uint8_t* record(std::size_t node) { return records + node * p.shape.stride(); }
  std::int8_t* numbers_of(std::size_t node) { return reinterpret_cast<std::int8_t*>(record(node)); }

  // Returns the transformed vector of a node; that of an old node is decoded into `space`.
  const float* vector_of(std::size_t node, float* space) {
    if (!is_old(node)) return p.vectors + (node - p.n_old) * p.shape.n_columns;
    const std::int8_t* numbers = numbers_of(node);
    for (std::size_t j = 0; j < p.shape.n_columns; ++j) space[j] = scales[node] * static_cast<float>(numbers[j]);
    return space;
  }

  void quantise_node(std::size_t node) {
    const std::size_t row = node - p.n_old;
    scales[node] = quantise(p.vectors + row * p.shape.n_columns, p.shape.n_columns, numbers_of(node));
    lost[node] = p.lost[row];
    norms[node] = sum_up(node) + lost[node];
    is_changed[node] = 1;
  }

  void read_record(std::size_t node) {
    const std::uint8_t* from = record(node);
    GraphHead head;
    std::memcpy(&head, from + p.shape.head(), sizeof head);
    scales[node] = head.scale;
    norms[node] = head.norm;
    lost[node] = head.norm - sum_up(node);
    const std::size_t n_neighbours = std::min<std::size_t>(head.n_neighbours, degree);
    for (std::size_t i = 0; i < n_neighbours; ++i) {
      std::uint32_t other;
      std::memcpy(&other, from + p.shape.nodes() + i * sizeof other, sizeof other);
      if (is_old(other) && other != node) edges[node * degree + n_edges[node]++] = other;
    }
  }

  // Sums up the numbers of a node; returns the squared length of scale * numbers.
  float sum_up(std::size_t node) {
    const std::int8_t* numbers = numbers_of(node);
    std::int32_t squares = 0, sum = 0;
    for (std::size_t j = 0; j < p.shape.n_columns; ++j) {
      squares += numbers[j] * numbers[j];
      sum += numbers[j];
    }
    sums[node] = sum;
    return scales[node] * scales[node] * static_cast<float>(squares);
  }

  float distance(std::size_t a, std::size_t b) {
    const std::int32_t dot = Isa::dot(numbers_of(a), numbers_of(b), p.shape.n_columns, sums[b]);
    return std::max(0.0f, norms[a] + norms[b] - 2.0f * (scales[a] * scales[b]) * static_cast<float>(dot));
  }

  // Reads the candidates of a new node, nearest first.
  void read_candidates(std::size_t node, std::vector<Reached>& to) {
    to.clear();
    const std::int32_t* from = p.candidates + (node - p.n_old) * p.n_candidates;
    for (std::size_t i = 0; i < p.n_candidates; ++i)
      if (from[i] >= 0 && static_cast<std::size_t>(from[i]) < n && static_cast<std::size_t>(from[i]) != node) {
        const auto other = static_cast<std::uint32_t>(from[i]);
        to.push_back({distance(node, other), other});
      }
    sort_distinct(to);
  }

  static void sort_distinct(std::vector<Reached>& nodes) {
    std::sort(nodes.begin(), nodes.end());
    nodes.erase(
        std::unique(nodes.begin(), nodes.end(), [](const Reached& a, const Reached& b) { return a.node == b.node; }),
        nodes.end());
  }

  // Chooses neighbours in different directions, nearest first; with `fill` the nearest others take the rest of places.
  void choose(std::size_t node, const std::vector<Reached>& near, bool fill) {
    std::uint32_t *to = &edges[node * degree], n_chosen = 0;
    std::vector<std::uint32_t>& others = left_out();
    others.clear();
    for (const Reached& candidate : near) {
      if (n_chosen == degree) break;
      bool is_hidden = false;
      for (std::uint32_t i = 0; i < n_chosen && !is_hidden; ++i)
        is_hidden = p.alpha * p.alpha * distance(to[i], candidate.node) < candidate.distance;
      if (is_hidden)
        others.push_back(candidate.node);
      else
        to[n_chosen++] = candidate.node;
    }
    for (std::size_t i = 0; fill && i < others.size() && n_chosen < degree; ++i) to[n_chosen++] = others[i];
    n_edges[node] = n_chosen;
  }

  void choose_first(std::size_t node) {
    std::vector<Reached>& near = near_nodes();
    read_candidates(node, near);
    choose(node, near, false);
  }

  // Lists for each node the new nodes that chose it.
  void collect_offers() {
    first_offer.assign(n + 1, 0);
    for (std::size_t node = p.n_old; node < n; ++node)
      for (std::uint32_t i = 0; i < n_edges[node]; ++i) ++first_offer[edges[node * degree + i] + 1];
    for (std::size_t node = 0; node < n; ++node) first_offer[node + 1] += first_offer[node];
    offers.resize(first_offer[n]);
    std::vector<std::size_t> at(first_offer.begin(), first_offer.end() - 1);
    for (std::size_t node = p.n_old; node < n; ++node)
      for (std::uint32_t i = 0; i < n_edges[node]; ++i)
        offers[at[edges[node * degree + i]]++] = static_cast<std::uint32_t>(node);
  }

  // Chooses among the edges, the offers, and for new nodes then the other candidates. An old node that takes no offer
  // stays as it is.
  void choose_again(std::size_t node) {
    if (is_old(node) && first_offer[node] == first_offer[node + 1]) return;
    std::vector<Reached>& near = near_nodes();
    near.clear();
    for (std::size_t i = first_offer[node]; i < first_offer[node + 1]; ++i)
      near.push_back({distance(node, offers[i]), offers[i]});
    if (near.size() > most_offers) {
      std::nth_element(near.begin(), near.begin() + most_offers, near.end());
      near.resize(most_offers);
    }
    std::uint32_t *to = &edges[node * degree], before[most_degree];
    const std::uint32_t n_before = n_edges[node];
    std::copy_n(to, n_before, before);
    for (std::uint32_t i = 0; i < n_before; ++i) near.push_back({distance(node, before[i]), before[i]});
    sort_distinct(near);
    if (near.size() > degree) {
      choose(node, near, true);
    } else {
      for (std::size_t i = 0; i < near.size(); ++i) to[i] = near[i].node;
      n_edges[node] = static_cast<std::uint32_t>(near.size());
      if (!is_old(node)) fill_up(node, near);
    }
    if (!is_old(node)) return;
    is_changed[node] = std::any_of(to, to + n_edges[node], [&](std::uint32_t other) { return !is_old(other); });
    if (is_changed[node]) return;
    std::copy_n(before, n_before, to);
    n_edges[node] = n_before;
  }

  void fill_up(std::size_t node, std::vector<Reached>& near) {
    std::uint32_t* to = &edges[node * degree];
    read_candidates(node, near);
    for (std::size_t i = 0; i < near.size() && n_edges[node] < degree; ++i)
      if (std::find(to, to + n_edges[node], near[i].node) == to + n_edges[node]) to[n_edges[node]++] = near[i].node;
  }

  // Gives nodes to which hardly an edge leads a place among the neighbours of their own neighbours.
  void link_lonely() {
    n_leading.assign(n, 0);
    for (std::size_t node = 0; node < n; ++node)
      for (std::uint32_t i = 0; i < n_edges[node]; ++i) ++n_leading[edges[node * degree + i]];
    for (std::size_t node = 0; node < n; ++node)
      for (std::uint32_t i = 0; i < n_edges[node] && n_leading[node] < least_edges; ++i)
        link(edges[node * degree + i], static_cast<std::uint32_t>(node), false);
  }

  // Adds an edge, if need be in place of one to a node to which others lead; if forced, of any.
  void link(std::uint32_t from, std::uint32_t node, bool is_forced) {
    std::uint32_t* to = &edges[from * degree];
    if (std::find(to, to + n_edges[from], node) != to + n_edges[from]) return;
    std::size_t place = n_edges[from];
    if (place < degree) {
      ++n_edges[from];
    } else {
      while (place-- > degree / 2 && n_leading[to[place]] <= enough_edges) continue;
      if (place < degree / 2 && !is_forced) return;
      if (place < degree / 2) place = degree - 1;
      --n_leading[to[place]];
    }
    to[place] = node;
    is_changed[from] = 1;
    ++n_leading[node];
  }

  // Links each part that cannot be reached from the entries to the nearest of them, or of the parts linked before.
  void connect() {
    std::vector<bool> is_reached(n, false);
    std::vector<std::uint32_t> bridges(p.entries, p.entries + p.n_entries);
    for (const std::uint32_t entry : bridges) reach_from(entry, is_reached);
    for (std::uint32_t node = 0; node < n && !cancellation.requested(); ++node) {
      if (is_reached[node]) continue;
      Reached nearest{farthest, bridges[0]};
      for (const std::uint32_t bridge : bridges) nearest = std::min(nearest, {distance(bridge, node), bridge});
      link(nearest.node, node, true);
      reach_from(node, is_reached);
      bridges.push_back(node);
    }
  }

  void reach_from(std::uint32_t start, std::vector<bool>& is_reached) {
    std::vector<std::uint32_t> waiting;
    const auto reach = [&](std::uint32_t node) {
      if (is_reached[node]) return;
      is_reached[node] = true;
      waiting.push_back(node);
    };
    reach(start);
    while (!waiting.empty()) {
      const std::uint32_t node = waiting.back();
      waiting.pop_back();
      for (std::uint32_t i = 0; i < n_edges[node]; ++i) reach(edges[node * degree + i]);
    }
  }

  // Records --------------------------------------------------------------------------------------------

  struct Edge {
    float add, factor, along, length;
  };

  void write_record(std::size_t node) {
    const GraphShape& shape = p.shape;
    std::uint8_t* to = record(node);
    std::memset(to + shape.codes(), 0, shape.stride() - shape.codes());
    float space[most_columns];
    const float* centre = vector_of(node, space);
    Edge own[most_degree] = {};
    for (std::uint32_t i = 0; i < degree; ++i) {
      const std::uint32_t other = i < n_edges[node] ? edges[node * degree + i] : static_cast<std::uint32_t>(node);
      std::memcpy(to + shape.nodes() + i * sizeof other, &other, sizeof other);
      if (i >= n_edges[node]) continue;
      own[i] = write_code(centre, other, i, to + shape.codes());
      own[i].length = own[i].length + lost[other] - lost[node];
    }
    GraphHead head{norms[node], scales[node], 0.0f, 0.0f, 0.0f, 0.0f, n_edges[node], 0};
    write_factors(node, own, head, to);
    std::memcpy(to + shape.head(), &head, sizeof head);
  }

  // Writes the code of a neighbour at position i.
  Edge write_code(const float* centre, std::size_t other, std::size_t i, std::uint8_t* codes) {
    const std::size_t n_columns = p.shape.n_columns;
    float residual[most_columns], code[most_columns];
    const float* vector = vector_of(other, residual);
    for (std::size_t j = 0; j < n_columns; ++j) residual[j] = vector[j] - centre[j];
    const float square = Isa::product(residual, residual, n_columns);
    const float deviation = std::sqrt(square / static_cast<float>(n_columns));
    const float per_step = deviation >= smallest_unit ? 1.0f / deviation : 0.0f;
    std::uint8_t* group = codes + i / graph_group * p.shape.n_rows() * 16;
    const std::size_t byte = i % graph_group % 16, shift = i % graph_group / 16 * 4;
    for (std::size_t j = 0; j < n_columns; ++j) {
      unsigned level;
      if (p.shape.n_bits == 1) {
        level = residual[j] > 0.0f;
        code[j] = level ? 1.0f : -1.0f;
      } else {
        const float rounded = std::nearbyint(std::max(0.0f, std::min(3.0f, residual[j] * per_step + 1.5f)));
        level = static_cast<unsigned>(rounded);
        code[j] = rounded - 1.5f;
      }
      const std::size_t bit = j * p.shape.n_bits;
      group[bit / 4 * 16 + byte] = static_cast<std::uint8_t>(group[bit / 4 * 16 + byte] | level << (bit % 4 + shift));
    }
    const float along = Isa::product(residual, code, n_columns);
    const float factor = along > 0.0f ? -2.0f * square / along : 0.0f;
    return {0.0f, factor, Isa::product(centre, code, n_columns), square};
  }

  // Quantises factors and adds in the ranges of this node. An add makes up for the rounding of its factor.
  void write_factors(std::size_t node, Edge* own, GraphHead& head, std::uint8_t* to) {
    const std::uint32_t n_own = n_edges[node];
    if (!n_own) return;
    const auto range = [&](float Edge::* field, float& low, float& step) {
      low = own[0].*field;
      float high = low;
      for (std::uint32_t i = 1; i < n_own; ++i) {
        low = std::min(low, own[i].*field);
        high = std::max(high, own[i].*field);
      }
      step = (high - low) / 255.0f;
      if (!(step >= smallest_unit)) step = 0.0f;
    };
    const auto level = [](float value, float low, float step) {
      return step > 0.0f ? std::nearbyint(std::max(0.0f, std::min(255.0f, (value - low) / step))) : 0.0f;
    };
    range(&Edge::factor, head.factor_low, head.factor_step);
    for (std::uint32_t i = 0; i < n_own; ++i) {
      const float rounded = level(own[i].factor, head.factor_low, head.factor_step);
      to[p.shape.factors() + i] = static_cast<std::uint8_t>(rounded);
      own[i].add = own[i].length - (head.factor_low + head.factor_step * rounded) * own[i].along;
    }
    range(&Edge::add, head.add_low, head.add_step);
    for (std::uint32_t i = 0; i < n_own; ++i)
      to[p.shape.adds() + i] = static_cast<std::uint8_t>(level(own[i].add, head.add_low, head.add_step));
  }

  static std::vector<Reached>& near_nodes() {
    thread_local std::vector<Reached> nodes;
    return nodes;
  }
  static std::vector<std::uint32_t>& left_out() {
    thread_local std::vector<std::uint32_t> nodes;
    return nodes;
  }

  const GraphPlan& p;
  const std::size_t n, degree;
  std::uint8_t* records;
  Cancellation cancellation;
  std::vector<std::int32_t> sums;
  std::vector<float> scales, norms, lost;
  std::vector<std::uint8_t> is_changed;                  // records to write
  std::vector<std::uint32_t> edges, n_edges, n_leading;  // (n, degree), (n), (n) edges that lead to a node
  std::vector<std::size_t> first_offer;
  std::vector<std::uint32_t> offers;
};

template <class Isa>
bool build_graph(const GraphPlan& plan, std::uint8_t* records) {
  return GraphBuilder<Isa>(plan, records).run();
}

}  // namespace
}  // namespace posh
