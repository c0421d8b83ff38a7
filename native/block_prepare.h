// Prepares queries: their 8-bit numbers, the planes to count and the lists to visit.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "block_state.h"
#include "projection.h"

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

template <class Isa>
class BlockPreparation {
 public:
  BlockPreparation(const BlockSearch& search, Workspace& workspace)
      : s(search), shape(search.lists->shape), w(workspace), n_planes(search.n_plus + search.n_minus) {}

  // Prepares the queries first, …, first + n - 1 of the search.
  void prepare(std::size_t first, std::size_t n) {
    first_query = first;
    reserve(w.queries, n);
    reserve(w.numbers, n * shape.width());
    reserve(w.planes, n * n_planes);
    reserve(w.kept, n * s.n_keep);
    if (s.bounds) {
      reserve(w.reaching, n);
      for (std::size_t i = 0; i < n; ++i) w.reaching[i].clear();
    }
    reserve(w.first_probe, n + 1);
    w.first_probe[0] = 0;
    reserve(w.coded, n * shape.n_columns);
    reserve(w.projected, n * shape.n_bits);
    reserve(w.difference, shape.n_columns);
    reserve(w.differences, tile * s.n_scanned);
    for (std::size_t at = 0; at < n; at += tile) prepare_tile(at, std::min(n, at + tile));
  }

  // The part of a score that all documents of the list share. More precise than a routing score.
  float score_of_list(std::size_t query, std::size_t list) const {
    if (s.is_distance) return -0.5f * Isa::distance(vector_of(query), centroid(list), s.n_features);
    return Isa::product(centroid(list), vector_of(query), s.n_features);
  }

  // Sets view_of(i) to the view of query_of(i) in a list, for up to `tile` queries. For distances, the numbers and
  // planes of these views are written to numbers (n, width) and planes (n, n_planes).
  template <class QueryOf, class ScoreOf, class ViewOf>
  void enter(std::size_t list, std::size_t n, std::int8_t* numbers, std::uint32_t* planes, QueryOf query_of,
             ScoreOf score_of, ViewOf view_of) {
    if (s.is_distance) {
      View views[tile];
      for (std::size_t i = 0; i < n; ++i)
        views[i] = difference(query_of(i), list, numbers + i * shape.width(), &w.differences[i * s.n_scanned]);
      choose_planes(w.differences.data(), views, planes, n);
      for (std::size_t i = 0; i < n; ++i) {
        view_of(i) = views[i];
        view_of(i).planes = planes + i * n_planes;
      }
    } else {
      for (std::size_t i = 0; i < n; ++i) view_of(i) = query_of(i).view;
    }
    for (std::size_t i = 0; i < n; ++i) view_of(i).list_score = score_of(i);
  }

  static constexpr std::size_t tile = 32;  // queries that are prepared together

  // The lists that the preparation has chosen for a query.
  Probes probes_of(const Query& query) const {
    const std::size_t first = w.first_probe[query.index];
    return {&w.probes[first], &w.list_scores[first], w.first_probe[query.index + 1] - first};
  }

  // Chooses the n best lists of a query.
  Probes best_probes(const Query& query, std::size_t n) {
    std::int8_t* numbers = reserve(w.near[0].numbers, shape.width());
    const float unit = make_view(&w.coded[query.index * shape.n_columns], numbers).unit;
    float* routed = reserve(w.routed, 8 * s.router->n_groups());
    Isa::route(*s.router, {numbers, shape.width(), &unit, 1}, routed);
    exclude_empty(routed);
    std::uint16_t* lists = reserve(w.wider_probes, n);
    take_best(routed, n, lists);
    score_lists(query.index, lists, n, reserve(w.wider_scores, n));
    return {lists, w.wider_scores.data(), n};
  }

  // Writes the routing scores of all queries, (n_queries, n_lists).
  void routing_scores(float* to) {
    const std::size_t n_lists = s.lists->n_lists();
    reserve(w.numbers, tile * shape.width());
    reserve(w.coded, tile * shape.n_columns);
    for (std::size_t first = 0; first < s.n_queries; first += tile) {
      first_query = first;
      const std::size_t n = std::min(tile, s.n_queries - first);
      View views[tile];
      const float* routed = route(0, n, views);
      for (std::size_t i = 0; i < n; ++i, to += n_lists) {
        std::copy_n(routed + i * 8 * s.router->n_groups(), n_lists, to);
        exclude_empty(to);
      }
    }
  }

 private:
  // Computes the difference of a query and a centroid, without planes yet, and its projection (n_scanned).
  View difference(const Query& query, std::size_t list, std::int8_t* numbers, float* projection) {
    const float *coded = &w.coded[query.index * shape.n_columns], *centre = s.coded_centroids + list * shape.n_columns;
    for (std::size_t j = 0; j < shape.n_columns; ++j) w.difference[j] = coded[j] - centre[j];
    const float *projected = &w.projected[query.index * shape.n_bits],
                *projected_centre = s.projected_centroids + list * shape.n_bits;
    for (std::size_t j = 0; j < s.n_scanned; ++j) projection[j] = projected[j] - projected_centre[j];
    return make_view(w.difference.data(), numbers);
  }

  const float* vector_of(std::size_t query) const { return s.queries + (first_query + query) * s.n_features; }
  const float* centroid(std::size_t list) const { return s.centroids + list * s.n_features; }

  void prepare_tile(std::size_t begin, std::size_t end) {
    const std::size_t n = end - begin;
    View views[tile];
    float* routed = route(begin, n, views);
    project<Isa>(*s.projection, &w.coded[begin * shape.n_columns], n, &w.projected[begin * shape.n_bits]);
    if (!s.is_distance) {
      float* projected = &w.projected[begin * shape.n_bits];
      for (std::size_t i = 1; i < n && s.n_scanned < shape.n_bits; ++i)  // the scanned bits, one row after the other
        std::copy_n(projected + i * shape.n_bits, s.n_scanned, projected + i * s.n_scanned);
      choose_planes(projected, views, &w.planes[begin * n_planes], n);
    }
    for (std::size_t i = begin; i < end; ++i) {
      Query& query = w.queries[i];
      query = {views[i - begin], lowest, lowest, lowest, 0, static_cast<std::uint32_t>(i)};
      query.view.planes = &w.planes[i * n_planes];
      choose_probes(query, routed + (i - begin) * 8 * s.router->n_groups());
    }
  }

  // Computes the routing scores of n queries, 8 * n_groups() for each. Writes their numbers and their columns to w.
  float* route(std::size_t begin, std::size_t n, View* views) {
    const std::size_t width = shape.width();
    float *routed = reserve(w.routed, n * 8 * s.router->n_groups()), *coded = &w.coded[begin * shape.n_columns];
    if (s.reducer)
      reduce_queries(begin, n, coded);
    else
      std::copy_n(vector_of(begin), n * shape.n_columns, coded);
    float* units = reserve(w.units, n);
    for (std::size_t i = 0; i < n; ++i) {
      views[i] = make_view(coded + i * shape.n_columns, &w.numbers[(begin + i) * width]);
      units[i] = views[i].unit;
    }
    Isa::route(*s.router, {&w.numbers[begin * width], width, units, n}, routed);
    return routed;
  }

  // Writes the reductions of n queries, (n, n_columns).
  void reduce_queries(std::size_t begin, std::size_t n, float* to) {
    const Router& reducer = *s.reducer;
    const std::size_t stride = 4 * reducer.n_quads(), n_scores = 8 * reducer.n_groups();
    std::int8_t* numbers = reserve(w.wide_numbers, n * stride);
    float *units = reserve(w.units, n), *reduced = reserve(w.reduced, n * n_scores);
    for (std::size_t i = 0; i < n; ++i) {
      units[i] = quantise(vector_of(begin + i), s.n_features, numbers + i * stride);
      std::fill(numbers + i * stride + s.n_features, numbers + (i + 1) * stride, std::int8_t{0});
    }
    Isa::route(reducer, {numbers, stride, units, n}, reduced);
    for (std::size_t i = 0; i < n; ++i) std::copy_n(reduced + i * n_scores, shape.n_columns, to + i * shape.n_columns);
  }

  // Quantises a vector (n_columns) to 8-bit numbers (width). `reach` is its square, by which choose_planes divides.
  View make_view(const float* values, std::int8_t* to) const {
    View view{};
    view.numbers = to;
    view.unit = quantise(values, shape.n_columns, to);
    std::fill(to + shape.n_columns, to + shape.width(), std::int8_t{0});
    std::int32_t sum = 0;
    for (std::size_t j = 0; j < shape.n_columns; ++j) sum += to[j];
    view.sum = 128 * sum;
    view.reach = Isa::product(values, values, shape.n_columns);
    constexpr float deviation = 4.6188f;  // of a low half from 7.5, which stands for all of them
    const float margin = s.half_margin * deviation * std::sqrt(view.reach) / view.unit;
    view.half_offset = 7.5f * static_cast<float>(sum) - static_cast<float>(view.sum) + margin;
    return view;
  }

  // Chooses the planes of n vectors by their projections (n, n_scanned), which are overwritten.
  void choose_planes(float* projected, View* views, std::uint32_t* planes, std::size_t n) {
    const std::size_t n_bits = s.n_scanned;
    take_planes(projected, n, s.n_plus, planes);
    if (s.n_minus) {
      for (std::size_t j = 0; j < n * n_bits; ++j) projected[j] = -projected[j];
      take_planes(projected, n, s.n_minus, planes + s.n_plus);
    }
    const float sign = s.n_minus ? -1.0f : 1.0f;  // the projections are negated now
    for (std::size_t i = 0; i < n; ++i) {
      const float squares = views[i].reach, *row = projected + i * n_bits;
      const std::uint32_t* bits = planes + i * n_planes;
      float sum = 0;
      for (std::size_t j = 0; j < s.n_plus; ++j) sum += sign * row[bits[j]];
      for (std::size_t j = s.n_plus; j < n_planes; ++j) sum += row[bits[j]];
      views[i].reach = squares > 0 ? sum / squares : 0.0f;
    }
  }

  // Writes n_chosen bit numbers for each of n vectors, n_planes apart.
  void take_planes(const float* projected, std::size_t n, std::size_t n_chosen, std::uint32_t* to) {
    if (!n_chosen) return;
    std::uint16_t* chosen = reserve(w.chosen, n * n_chosen);
    Isa::winners(projected, n, s.n_scanned, n_chosen, chosen);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n_chosen; ++j) to[i * n_planes + j] = chosen[i * n_chosen + j];
  }

  // Keeps lists without live documents from being visited.
  void exclude_empty(float* routing) const {
    const float* n_live = s.lists->n_live.data();
    for (std::size_t l = 0; l < s.lists->n_lists(); ++l) routing[l] = n_live[l] > 0.0f ? routing[l] : lowest;
  }

  // Chooses the lists of a query, and writes them by ascending number with their scores.
  void choose_probes(Query& query, float* routing) {
    exclude_empty(routing);
    const std::size_t n_lists = s.lists->n_lists(), i = query.index, first = w.first_probe[i];
    const std::size_t best = Isa::largest(routing, n_lists);
    const float* vector = vector_of(i);
    const float length = s.is_distance ? 1.0f : std::sqrt(Isa::product(vector, vector, s.n_features));
    std::uint16_t* to = reserve(w.probes, first + n_lists) + first;
    std::size_t n = s.n_probe;
    if (n)
      take_best(routing, n, to);
    else
      n = take_above(routing, lowest_visited(routing, best, scale_of_gaps(i, best, length)), best, to);
    w.first_probe[i + 1] = first + n;
    float* scores = reserve(w.list_scores, first + n) + first;
    score_lists(i, to, n, scores);
    if (s.has_first) query.limit = s.first_intercept * length + s.first_slope * *std::max_element(scores, scores + n);
    if (s.bounds) {  // documents of the list are compared with this much more than their 8-bit scores
      for (std::size_t j = 0; j < n; ++j)
        scores[j] += s.margin * (s.is_distance ? std::sqrt(-2.0f * scores[j]) : length);
      query.limit = s.bounds[first_query + i] * (s.is_distance ? 0.5f : 1.0f);
    }
    query.entry = query.scan_limit = query.limit;
  }

  // The c of Reach.
  float scale_of_gaps(std::size_t query, std::size_t best, float length) const {
    if (!s.is_distance) return length * s.reach.spread;
    return 0.5f * (s.reach.spread * s.reach.spread) - score_of_list(query, best);
  }

  // The lowest routing score of a list that Reach visits.
  float lowest_visited(const float* routing, std::size_t best, float scale) const {
    const float highest = routing[best], inverse = 1.0f / scale, *n_live = s.lists->n_live.data();
    if (!(scale > 0.0f) || !(inverse < std::numeric_limits<float>::infinity()))
      return lowest;      // gaps carry no information
    float lanes[8] = {};  // sums in the order of eight_sums
    for (std::size_t first = 0; first < s.lists->n_live.size(); first += 8) {
      float base[8], weights[8];
      for (std::size_t i = 0; i < 8; ++i) {
        base[i] = 1.0f / (1.0f + (highest - routing[first + i]) * inverse);
        weights[i] = n_live[first + i];
      }
      for (unsigned left = s.reach.power; left; left >>= 1) {  // powers by squaring
        if (left & 1)
          for (std::size_t i = 0; i < 8; ++i) weights[i] *= base[i];
        for (std::size_t i = 0; i < 8; ++i) base[i] *= base[i];
      }
      for (std::size_t i = 0; i < 8; ++i) lanes[i] += weights[i];
    }
    for (std::size_t i = 0; i < 4; ++i) lanes[i] += lanes[i + 4];
    const double sum = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
    const double gap = std::pow(s.reach.bound * sum, -1.0 / s.reach.power) - 1.0;
    return static_cast<float>(highest - scale * gap);
  }

  // Writes the lists whose routing scores are at least `bound`, and always the best one; returns their number.
  std::size_t take_above(const float* routing, float bound, std::size_t best, std::uint16_t* to) const {
    std::size_t n = 0;
    for (std::size_t l = 0; l < s.lists->n_lists(); ++l) {
      to[n] = static_cast<std::uint16_t>(l);
      n += l == best || (routing[l] >= bound && routing[l] > lowest);
    }
    return n;
  }

  // Writes the n lists with the highest routing scores.
  void take_best(const float* routing, std::size_t n, std::uint16_t* to) const {
    if (n < s.lists->n_lists())
      Isa::winners(routing, 1, s.lists->n_lists(), n, to);
    else
      for (std::size_t l = 0; l < n; ++l) to[l] = static_cast<std::uint16_t>(l);
  }

  void score_lists(std::size_t query, const std::uint16_t* lists, std::size_t n, float* scores) const {
    std::size_t j = 0;
    for (; j + 4 <= n; j += 4) {  // four independent sums take little longer than one
      const float* const four[4] = {centroid(lists[j]), centroid(lists[j + 1]), centroid(lists[j + 2]),
                                    centroid(lists[j + 3])};
      scores_of(four, vector_of(query), scores + j);
    }
    for (; j < n; ++j) scores[j] = score_of_list(query, lists[j]);
  }

  // As score_of_list.
  void scores_of(const float* const (&centroids)[4], const float* vector, float* to) const {
    float sums[1][4];
    if (s.is_distance)
      Isa::distances(centroids, vector, s.n_features, sums[0]);
    else
      Isa::template products<4, 1>(centroids, {vector}, s.n_features, sums);
    for (std::size_t i = 0; i < 4; ++i) to[i] = s.is_distance ? -0.5f * sums[0][i] : sums[0][i];
  }

  const BlockSearch& s;
  const BlockShape& shape;
  Workspace& w;
  const std::size_t n_planes;
  std::size_t first_query = 0;
};

}  // namespace
}  // namespace posh
