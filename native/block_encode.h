// Encodes documents as codes and 8-bit residuals, and finds the nearest lists of vectors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "blocks.h"
#include "projection.h"
#include "threads.h"

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

struct Measures {
  float square, offset;  // the squared length of the encoded columns, and the offset of Fit
};

// Documents that are encoded together.
template <class Isa>
class EncodedTile {
 public:
  static constexpr std::size_t size = 32;

  EncodedTile(const Residuals& from, const BlockShape& shape)
      : from(from), n_columns(shape.n_columns), residuals(size * from.n_features),
        reduced(from.reduction ? size * n_columns : 0) {}

  // Computes the residuals of n documents, and reduces them if there is a reduction.
  void load(const std::uint32_t* docs, std::size_t n) {
    const std::size_t d = from.n_features;
    for (std::size_t i = 0; i < n; ++i) {
      const float* vector = from.vectors + docs[i] * d;
      const float* centroid = from.centroids + static_cast<std::size_t>(from.lists[docs[i]]) * d;
      for (std::size_t j = 0; j < d; ++j) residuals[i * d + j] = vector[j] - centroid[j];
    }
    if (from.reduction) reduce<Isa>(*from.reduction, residuals.data(), n, reduced.data());
  }

  // The columns that are encoded, (n, n_columns): residuals, reduced if there is a reduction.
  const float* coded() const { return from.reduction ? reduced.data() : residuals.data(); }
  const float* coded(std::size_t i) const { return coded() + i * n_columns; }

  Measures measure(std::size_t i) const {
    const float* residual = &residuals[i * from.n_features];
    const float offset = from.is_distance ? -0.5f * Isa::product(residual, residual, from.n_features) : 0.0f;
    return {Isa::product(coded(i), coded(i), n_columns), offset};
  }

 private:
  const Residuals& from;
  const std::size_t n_columns;
  std::vector<float> residuals, reduced;
};

inline void extend_range(const Measures& measures, bool is_distance, GroupRange& range) {
  const float length = std::sqrt(measures.square);
  range.shortest = std::min(range.shortest, std::max(length, smallest_unit));
  range.longest = std::max(range.longest, length);
  range.offset = std::max(range.offset, is_distance ? measures.offset + 0.5f * measures.square : measures.offset);
}

// Writes the residual as 8-bit numbers in two halves; returns their scale. See Block for the layout.
inline float write_halves(const float* residual, const BlockShape& shape, std::uint8_t* high, std::uint8_t* low) {
  float scale = largest_size(residual, shape.n_columns) / 127.0f;
  if (!(scale >= smallest_unit)) scale = 0.0f;
  for (std::size_t j = 0; j < shape.half_bytes(); ++j) high[j] = low[j] = 0;
  for (std::size_t j = 0; j < 2 * shape.half_bytes(); ++j) {
    int number = 128;  // zero, and the value of padding
    if (j < shape.n_columns && scale > 0) number += static_cast<int>(std::nearbyint(residual[j] / scale));
    const std::size_t byte = shape.byte_of(j), shift = shape.is_upper(j) ? 4 : 0;
    high[byte] |= static_cast<std::uint8_t>(number >> 4 << shift);
    low[byte] |= static_cast<std::uint8_t>((number & 15) << shift);
  }
  return scale;
}

template <class Isa>
void encode_docs(const BlockShape& shape, const Projection& projection, const Residuals& residuals,
                 const std::uint32_t* docs, std::size_t n, const BlockTarget& target) {
  constexpr std::size_t tile = EncodedTile<Isa>::size;
  EncodedTile<Isa> encoded(residuals, shape);
  std::vector<float> projected(tile * shape.n_bits);
  std::vector<std::uint16_t> bits(tile * shape.n_active);
  for (std::size_t begin = 0; begin < n; begin += tile) {
    const std::size_t size = std::min(tile, n - begin);
    encoded.load(docs + begin, size);
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t to = target.first_doc + begin + i;
      const Measures measures = encoded.measure(i);
      extend_range(measures, residuals.is_distance, target.ranges[to / group_docs]);
      const float scale = write_halves(encoded.coded(i), shape, target.high + to * shape.high_stride(),
                                       target.low + to * shape.half_bytes());
      target.fits[to] = {scale, measures.offset};
      target.slots[to] = residuals.slots[docs[begin + i]];
    }
    project<Isa>(projection, encoded.coded(), size, projected.data());
    Isa::winners(projected.data(), size, shape.n_bits, shape.n_active, bits.data());
    const std::size_t row_bytes = target.n_groups * group_bytes;
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t to = target.first_doc + begin + i;
      for (std::size_t j = 0; j < shape.n_active; ++j)
        target.planes[bits[i * shape.n_active + j] * row_bytes + to / 8] |= static_cast<std::uint8_t>(1u << to % 8);
    }
  }
}

template <class Isa>
bool nearest_lists(const Routing& routing, std::int32_t* lists) {
  const Router& router = *routing.router;
  Cancellation cancellation(routing.poll);
  constexpr std::size_t part = 256, tile = 4;
  run_tasks((routing.n_vectors + part - 1) / part, routing.n_threads, cancellation, [&](std::size_t task) {
    const std::size_t stride = 4 * router.n_quads(), n_scores = 8 * router.n_groups();
    std::vector<std::int8_t> numbers(tile * stride);
    std::vector<float> scores(tile * n_scores), units(tile);
    const std::size_t end = std::min(routing.n_vectors, (task + 1) * part);
    for (std::size_t begin = task * part; begin < end; begin += tile) {
      const std::size_t n = std::min(tile, end - begin);
      for (std::size_t i = 0; i < n; ++i)
        units[i] = quantise(routing.vectors + (begin + i) * router.n_columns, router.n_columns, &numbers[i * stride]);
      Isa::route(router, {numbers.data(), stride, units.data(), n}, scores.data());
      for (std::size_t i = 0; i < n; ++i)
        lists[begin + i] = static_cast<std::int32_t>(Isa::largest(&scores[i * n_scores], router.n_lists));
    }
  });
  return !cancellation.requested();
}

}  // namespace
}  // namespace posh
