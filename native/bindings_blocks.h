// The arguments of the search in blocks. Each class keeps its arrays alive. See blocks.h.
#pragma once

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "bindings.h"
#include "blocks.h"

namespace {

using Rows = Matrix<const float>;

posh::Router make_router(Rows centroids, Floats bias) {
  require(centroids.shape(0) >= 1 && bias.shape(0) == centroids.shape(0), "router: shapes");
  return posh::Router(centroids.data(), bias.data(), centroids.shape(0), centroids.shape(1));
}

// Up to this number of columns, a sum of 8-bit numbers times numbers from -127 to 127 stays below 2^31.
constexpr std::size_t max_columns = 65536;

posh::Projection make_projection(const Rows& signs, std::size_t n_bits, std::size_t n_columns) {
  const std::size_t n = signs.shape(0);
  require(n >= 1 && n_bits >= n && n_bits % n == 0 && signs.shape(1) == n_columns, "signs: shapes");
  const std::size_t size = n_bits / n;
  require((size & (size - 1)) == 0, "signs: size");
  return {n_bits, n_columns, nullptr, signs.data(), size};
}

// The part that all blocks of an index share: centroids, projection, and the kind of score.
struct Space {
  Space(std::size_t n_bits, std::size_t n_active, Rows centroids, Rows routing, Floats routing_bias,
        std::optional<Rows> weights, std::optional<Rows> signs, std::optional<Rows> reduction, bool is_distance)
      : shape{n_bits, n_active, routing.shape(1), routing.shape(1)}, router(make_router(routing, routing_bias)),
        centroids(centroids), weights(weights), signs(signs), reduction_rows(reduction), is_distance(is_distance) {
    const std::size_t n_lists = centroids.shape(0), d = centroids.shape(1), n_columns = routing.shape(1);
    require(n_lists >= 1 && n_lists <= 65536 && routing.shape(0) == n_lists && routing_bias.shape(0) == n_lists,
            "space: lists");
    require(n_columns >= 1 && n_columns <= max_columns && (reduction || n_columns == d), "space: columns");
    if (reduction) {
      require(reduction->shape(0) == n_columns && reduction->shape(1) == d, "space: reduction");
      reduction_of = {reduction->data(), n_columns, d};
      const std::vector<float> no_bias(n_columns);
      reducer_of.emplace(reduction->data(), no_bias.data(), n_columns, d);
    }
    require(n_bits >= 32 && n_bits <= 65536 && n_bits % 32 == 0 && n_active >= 1 && n_active <= n_bits, "space: bits");
    require(weights.has_value() != signs.has_value(), "space: projection");
    projection = {n_bits, n_columns, nullptr, nullptr, 0};
    if (weights) {
      require(weights->shape(0) == n_bits && weights->shape(1) == n_columns, "space: weights");
      projection.weights = weights->data();
    } else {
      projection = make_projection(*signs, n_bits, n_columns);
    }
    if (is_distance) project_centroids();
  }

  // Reduces and projects the centroids as queries are. Any kernel will do: all compute the same numbers.
  void project_centroids() {
    const std::size_t n_lists = centroids.shape(0), d = centroids.shape(1);
    const posh::ProjectRowsFn project_rows = posh::kernels[0].project_rows;
    coded_centroids.resize(n_lists * shape.n_columns);
    projected_centroids.resize(n_lists * shape.n_bits);
    if (reduction_rows)
      project_rows({shape.n_columns, d, reduction_rows->data(), nullptr, 0}, centroids.data(), n_lists,
                   coded_centroids.data());
    else
      std::copy_n(centroids.data(), n_lists * d, coded_centroids.data());
    project_rows(projection, coded_centroids.data(), n_lists, projected_centroids.data());
  }

  posh::BlockShape shape;
  posh::Router router;
  posh::Projection projection;
  Rows centroids;
  const posh::Reduction* reduction() const { return reduction_rows ? &reduction_of : nullptr; }
  const posh::Router* reducer() const { return reducer_of ? &*reducer_of : nullptr; }

  std::optional<Rows> weights, signs, reduction_rows;
  posh::Reduction reduction_of{};
  std::optional<posh::Router> reducer_of;
  std::vector<float> coded_centroids, projected_centroids;  // for distances
  bool is_distance;
};

struct Settings {
  std::size_t n_probe;  // 0: lists are chosen by reach
  posh::Reach reach;
  std::size_t n_plus, n_minus, n_scanned, n_keep;
  Vector<const std::int32_t> thresholds;
  float threshold_scale, half_margin;
  std::optional<std::tuple<float, float>> first;  // intercept and slope of the first limit
  float min_shared;
};

// The vectors of documents by slot.
struct Vectors {
  Vectors(std::optional<Rows> floats, std::optional<Matrix<const std::uint16_t>> halves, std::size_t n_slots)
      : floats(floats), halves(halves), n_slots(n_slots) {
    require(!floats || !halves, "vectors: two kinds");
    require((!floats || floats->shape(0) >= n_slots) && (!halves || halves->shape(0) >= n_slots), "vectors: slots");
    kind = floats ? posh::Stored::float32 : halves ? posh::Stored::float16 : posh::Stored::residuals;
    data = floats ? static_cast<const void*>(floats->data()) : halves ? halves->data() : nullptr;
    n_features = floats ? floats->shape(1) : halves ? halves->shape(1) : 0;
  }

  std::optional<Rows> floats;
  std::optional<Matrix<const std::uint16_t>> halves;
  std::size_t n_slots, n_features;
  posh::Stored kind;
  const void* data;
};

}  // namespace
