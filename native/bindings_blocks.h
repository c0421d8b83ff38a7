// What the search in blocks is given: each keeps its arrays alive. See blocks.h.
#pragma once

#include <optional>
#include <tuple>

#include "bindings.h"
#include "blocks.h"

namespace {

using Floats = Vector<const float>;
using Rows = Matrix<const float>;

posh::Router router_of(Rows centroids, Floats bias) {
  require(centroids.shape(0) >= 1 && bias.shape(0) == centroids.shape(0), "router: shapes");
  return posh::Router(centroids.data(), bias.data(), centroids.shape(0), centroids.shape(1));
}

// The sum over this many columns, each an 8-bit number times one from -127 to 127, is below 2^31.
constexpr std::size_t max_columns = 65536;

posh::Projection projection_of(const Rows& signs, std::size_t n_bits, std::size_t n_columns) {
  const std::size_t n = signs.shape(0);
  require(n >= 1 && n_bits >= n && n_bits % n == 0 && signs.shape(1) == n_columns, "signs: shapes");
  const std::size_t size = n_bits / n;
  require((size & (size - 1)) == 0, "signs: size");
  return {n_bits, n_columns, nullptr, signs.data(), size};
}

// What all blocks of an index share: centroids, projection, and how scores are made of them. Keeps its arrays alive.
struct Space {
  Space(std::size_t n_bits, std::size_t n_active, Rows centroids, Rows routing, Floats routing_bias, Floats list_bias,
        std::optional<Rows> weights, std::optional<Rows> signs, std::optional<Rows> reduction, float distance_weight,
        float mean_offset)
      : shape{n_bits, n_active, routing.shape(1)},
        router(router_of(routing, routing_bias)),
        centroids(centroids),
        list_bias(list_bias),
        weights(weights),
        signs(signs),
        reduction_rows(reduction),
        distance_weight(distance_weight),
        mean_offset(mean_offset) {
    const std::size_t n_lists = centroids.shape(0), d = centroids.shape(1), n_columns = routing.shape(1);
    require(n_lists >= 1 && n_lists <= 65536 && routing.shape(0) == n_lists && routing_bias.shape(0) == n_lists &&
                list_bias.shape(0) == n_lists,
            "space: lists");
    require(n_columns >= 1 && n_columns <= max_columns && (reduction || n_columns == d), "space: columns");
    if (reduction) {
      require(reduction->shape(0) == n_columns && reduction->shape(1) == d, "space: reduction");
      reduction_of = {reduction->data(), n_columns, d};
    }
    require(n_bits >= 32 && n_bits <= 65536 && n_bits % 32 == 0 && n_active >= 1 && n_active <= n_bits, "space: bits");
    require(weights.has_value() != signs.has_value(), "space: projection");
    const std::size_t n_coded = n_columns + (distance_weight > 0);
    projection = {n_bits, n_coded, nullptr, nullptr, 0};
    if (weights) {
      require(weights->shape(0) == n_bits && weights->shape(1) == n_coded, "space: weights");
      projection.weights = weights->data();
    } else {
      projection = projection_of(*signs, n_bits, n_coded);
    }
  }

  posh::BlockShape shape;
  posh::Router router;
  posh::Projection projection;
  Rows centroids;
  Floats list_bias;
  const posh::Reduction* reduction() const { return reduction_rows ? &reduction_of : nullptr; }

  std::optional<Rows> weights, signs, reduction_rows;
  posh::Reduction reduction_of{};
  float distance_weight, mean_offset;
};

struct Settings {
  std::size_t n_probe, n_plus, n_minus, n_scanned, n_keep;
  float gain, slack, half_margin;
  std::optional<std::tuple<float, float, float>> first;  // intercept, slope and weight of the first limit
  bool by_list, is_distance;
};

// The vectors of documents by slot. Keeps their array alive.
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
