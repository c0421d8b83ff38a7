// Queries are prepared: 8-bit numbers, planes to count, lists to visit. Include it like block_search.h.
#pragma once

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

template <class Isa>
class BlockPreparation {
 public:
  BlockPreparation(const BlockSearch& search, Workspace& workspace)
      : s(search), shape(search.lists->shape), w(workspace), n_planes(search.n_plus + search.n_minus) {}

  // Queries first, …, first + n - 1 of the search.
  void prepare(std::size_t first, std::size_t n) {
    first_query = first;
    reserve(w.queries, n);
    reserve(w.numbers, n * shape.width());
    reserve(w.planes, n * n_planes);
    reserve(w.kept, n * s.n_keep);
    reserve(w.probes, n * s.n_probe);
    reserve(w.routing_scores, n * s.n_probe);
    reserve(w.list_scores, n * s.n_probe);
    constexpr std::size_t tile = 32;
    for (std::size_t at = 0; at < n; at += tile) prepare_tile(at, std::min(n, at + tile));
  }

  // More precise than a routing score: it is a part of the scores of all documents of the list.
  float score_of_list(std::size_t query, std::size_t list) const {
    return Isa::product(centroid(list), vector_of(query), s.n_features) + s.list_bias[list];
  }

 private:
  const float* vector_of(std::size_t query) const { return s.queries + (first_query + query) * s.n_features; }
  const float* centroid(std::size_t list) const { return s.centroids + list * s.n_features; }

  void prepare_tile(std::size_t begin, std::size_t end) {
    const std::size_t n = end - begin, n_scores = 8 * s.router->n_groups();
    float *projected = reserve(w.projected, n * shape.n_bits), *routed = reserve(w.routed, n * n_scores),
          *units = reserve(w.units, n), *coded = reserve(w.coded, shape.n_columns + 1);
    for (std::size_t i = begin; i < end; ++i) {
      if (s.reduction)
        reduce<Isa>(*s.reduction, vector_of(i), coded);
      else
        std::copy_n(vector_of(i), shape.n_columns, coded);
      coded[shape.n_columns] = s.distance_weight;
      quantise_query(i, coded);
      project_coded<Isa>(*s.projection, shape.n_columns, coded, projected + (i - begin) * shape.n_bits);
      units[i - begin] = w.queries[i].unit;
    }
    Isa::route(*s.router, {&w.numbers[begin * shape.width()], shape.width(), units, n}, routed);
    choose_planes(begin, n);
    for (std::size_t i = begin; i < end; ++i) choose_probes(i, routed + (i - begin) * n_scores);
  }

  void quantise_query(std::size_t i, const float* values) {
    std::int8_t* to = &w.numbers[i * shape.width()];
    const float unit = quantise(values, shape.n_columns, to);
    std::fill(to + shape.n_columns, to + shape.width(), std::int8_t{0});
    std::int32_t sum = 0;
    for (std::size_t j = 0; j < shape.n_columns; ++j) sum += to[j];
    const float squares = Isa::product(values, values, shape.n_columns);
    Query& query = w.queries[i];
    query = {};
    query.numbers = to;
    query.unit = unit;
    query.sum = 128 * sum;
    constexpr float deviation = 4.6188f;  // of a low half from 7.5, which is what it counts as
    const float margin = s.half_margin * deviation * std::sqrt(squares) / unit;
    query.half_offset = 7.5f * static_cast<float>(sum) - static_cast<float>(query.sum) + margin;
    query.reach = squares + s.distance_weight * s.distance_weight;  // choose_planes divides by it
    query.limit = query.entry = lowest;
    query.index = static_cast<std::uint32_t>(i);
  }

  void choose_planes(std::size_t begin, std::size_t n) {
    const std::size_t n_bits = s.n_scanned;
    float* projected = w.projected.data();
    for (std::size_t i = 1; i < n && n_bits < shape.n_bits; ++i)  // the rows of the scanned bits, one after the other
      std::copy_n(projected + i * shape.n_bits, n_bits, projected + i * n_bits);
    take_planes(begin, n, s.n_plus, 0);
    if (s.n_minus) {
      for (std::size_t j = 0; j < n * n_bits; ++j) projected[j] = -projected[j];
      take_planes(begin, n, s.n_minus, s.n_plus);
    }
    const float sign = s.n_minus ? -1.0f : 1.0f;  // the projections are negated now
    for (std::size_t i = 0; i < n; ++i) {
      Query& query = w.queries[begin + i];
      const float squares = query.reach;
      const std::uint32_t* rows = &w.planes[(begin + i) * n_planes];
      const float* row = projected + i * n_bits;
      float sum = 0;
      for (std::size_t j = 0; j < s.n_plus; ++j) sum += sign * row[rows[j]];
      for (std::size_t j = s.n_plus; j < n_planes; ++j) sum += row[rows[j]];
      query.reach = squares > 0 ? sum / squares : 0.0f;
    }
  }

  void take_planes(std::size_t begin, std::size_t n, std::size_t n_chosen, std::size_t at) {
    if (!n_chosen) return;
    std::uint16_t* chosen = reserve(w.chosen, n * n_chosen);
    Isa::winners(w.projected.data(), n, s.n_scanned, n_chosen, chosen);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n_chosen; ++j) w.planes[(begin + i) * n_planes + at + j] = chosen[i * n_chosen + j];
  }

  // Writes the best lists of query i by ascending number, and their scores.
  void choose_probes(std::size_t i, const float* routing) {
    const std::size_t n_lists = s.lists->n_lists(), n = s.n_probe;
    std::uint16_t* to = &w.probes[i * n];
    if (n < n_lists)
      Isa::winners(routing, 1, n_lists, n, to);
    else
      for (std::size_t l = 0; l < n_lists; ++l) to[l] = static_cast<std::uint16_t>(l);
    float *routing_scores = &w.routing_scores[i * n], *scores = &w.list_scores[i * n];
    std::size_t j = 0;
    for (; j + 4 <= n; j += 4) {  // four independent sums take little longer than one
      Isa::products({centroid(to[j]), centroid(to[j + 1]), centroid(to[j + 2]), centroid(to[j + 3])}, vector_of(i),
                    s.n_features, scores + j);
      for (std::size_t l = j; l < j + 4; ++l) scores[l] += s.list_bias[to[l]];
    }
    for (; j < n; ++j) scores[j] = score_of_list(i, to[j]);
    for (j = 0; j < n; ++j) routing_scores[j] = routing[to[j]];
    if (s.has_first) {
      Query& query = w.queries[i];
      const float squares = Isa::product(vector_of(i), vector_of(i), s.n_features);
      query.limit = s.first_intercept + s.first_slope * *std::max_element(scores, scores + n) + s.first_weight * squares;
      query.entry = query.limit;
    }
  }

  const BlockSearch& s;
  const BlockShape& shape;
  Workspace& w;
  const std::size_t n_planes;
  std::size_t first_query = 0;
};

}  // namespace
}  // namespace posh
