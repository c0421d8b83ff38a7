// Documents become codes and 8-bit numbers of their residuals; vectors find their nearest lists.
#pragma once

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

struct Encoded {
  float square, offset;  // the squared length of what codes are made of
};

// Writes the residual of a document, (n_features), and what its code and its numbers are made of, (n_columns).
template <class Isa>
Encoded residual_of(const Residuals& from, std::size_t doc, float* residual, float* coded) {
  const std::size_t d = from.n_features, n_columns = from.reduction ? from.reduction->n_columns : d;
  const float* vector = from.vectors + doc * d;
  const float* centroid = from.centroids + static_cast<std::size_t>(from.lists[doc]) * d;
  for (std::size_t j = 0; j < d; ++j) residual[j] = vector[j] - centroid[j];
  if (from.reduction)
    reduce<Isa>(*from.reduction, residual, coded);
  else
    std::copy_n(residual, d, coded);
  const float offset = from.is_distance ? -0.5f * Isa::product(residual, residual, d) : 0.0f;
  return {Isa::product(coded, coded, n_columns), offset};
}

inline void include(const Encoded& own, bool is_distance, GroupRange& range) {
  const float length = std::sqrt(own.square);
  range.shortest = std::min(range.shortest, std::max(length, smallest_unit));
  range.longest = std::max(range.longest, length);
  range.offset = std::max(range.offset, is_distance ? own.offset + 0.5f * own.square : own.offset);
}

// Writes the residual as 8-bit numbers in two halves; returns their scale.
inline float write_halves(const float* residual, const BlockShape& shape, std::uint8_t* high, std::uint8_t* low) {
  float largest = 0;
  for (std::size_t j = 0; j < shape.n_columns; ++j) largest = std::max(largest, std::fabs(residual[j]));
  float scale = largest / 127.0f;
  if (!(scale >= smallest_unit)) scale = 0.0f;
  for (std::size_t j = 0; j < shape.half_bytes(); ++j) high[j] = low[j] = 0;
  for (std::size_t j = 0; j < shape.width(); ++j) {
    int number = 128;  // zero, also for padding
    if (j < shape.n_columns && scale > 0) number += static_cast<int>(std::nearbyint(residual[j] / scale));
    const std::size_t byte = j / 64 * 32 + j % 32, shift = j % 64 / 32 * 4;
    high[byte] |= static_cast<std::uint8_t>(number >> 4 << shift);
    low[byte] |= static_cast<std::uint8_t>((number & 15) << shift);
  }
  return scale;
}

template <class Isa>
void encode_docs(const BlockShape& shape, const Projection& projection, const Residuals& residuals,
                 const std::uint32_t* docs, std::size_t n, const BlockTarget& target) {
  constexpr std::size_t tile = 32;
  std::vector<float> residual(residuals.n_features), coded(shape.n_columns), projected(tile * shape.n_bits);
  std::vector<std::uint16_t> bits(tile * shape.n_active);
  for (std::size_t begin = 0; begin < n; begin += tile) {
    const std::size_t size = std::min(tile, n - begin);
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t to = target.first_doc + begin + i;
      const Encoded own = residual_of<Isa>(residuals, docs[begin + i], residual.data(), coded.data());
      include(own, residuals.is_distance, target.ranges[to / group_docs]);
      const float scale = write_halves(coded.data(), shape, target.high + to * shape.half_bytes(),
                                       target.low + to * shape.half_bytes());
      target.fits[to] = {scale, own.offset};
      target.slots[to] = residuals.slots[docs[begin + i]];
      project<Isa>(projection, coded.data(), &projected[i * shape.n_bits]);
    }
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
