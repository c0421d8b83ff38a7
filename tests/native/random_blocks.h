// Random cases for the search in blocks. Each block has an allocation of its own, so that a sanitizer notices an access
// one byte past its end.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "blocks.h"

namespace {

std::mt19937_64 random_bits(0);

std::size_t between(std::size_t low, std::size_t high) { return low + random_bits() % (high - low + 1); }

template <class T>
T one_of(std::initializer_list<T> values) {
  return values.begin()[between(0, values.size() - 1)];
}

// Numbers of any scale up to squares that do not overflow; some are equal, some are zero.
std::vector<float> random_floats(std::size_t n, float scale) {
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  const bool is_coarse = between(0, 3) == 0;
  for (float& value : values) {
    value = normal(random_bits);
    value = (is_coarse ? std::nearbyint(value) : value) * scale;
  }
  return values;
}

struct Case {
  std::size_t n_docs, n_slots, n_features, n_lists, n_queries;
  posh::BlockShape shape;
  float scale;
  bool is_distance;
  std::vector<float> centroids, routing, bias, weights, signs, reduction, vectors, queries, coded_centroids,
      projected_centroids;
  std::vector<std::uint16_t> halves;
  std::vector<std::int32_t> lists;
  std::vector<std::uint32_t> slots;
  posh::Projection projection;
  posh::Reduction reduced;
  std::optional<posh::Router> reducer;

  Case() {
    n_docs = between(0, 9) ? between(0, 400) : between(2000, 5000);
    n_features = n_docs > 1000 ? between(1, 20) : between(1, 300);
    n_lists = between(0, 2) ? between(1, 9) : between(1, 70);
    n_queries = n_docs < 1000 && !between(0, 5) ? between(30, 70) : between(0, 5);
    scale = one_of({1.0f, 1.0f, 1e-3f, 1e16f, 1e-20f, 1e-44f});
    is_distance = between(0, 1);
    const std::size_t n_columns = between(0, 1) ? n_features : between(1, 70);
    if (n_columns != n_features) reduction = random_floats(n_columns * n_features, 1.0f);
    reduced = {reduction.data(), n_columns, n_features};
    if (!reduction.empty())
      reducer.emplace(reduction.data(), std::vector<float>(n_columns).data(), n_columns, n_features);
    const std::size_t n_bits = 32 * between(1, 10);
    shape = {n_bits, between(1, n_bits), n_columns, n_columns};
    if (!between(0, 2)) shape.n_stored = shape.width();  // as in old files
    centroids = random_floats(n_lists * n_features, scale);
    routing = random_floats(n_lists * n_columns, scale);
    bias = random_floats(n_lists, scale);
    projection = {n_bits, n_columns, nullptr, nullptr, 0};
    if (between(0, 1)) {
      weights = random_floats(n_bits * n_columns, 1.0f);
      projection.weights = weights.data();
    } else {
      projection.size = n_bits & (~n_bits + 1);
      for (std::size_t i = 0; i < n_bits / projection.size * n_columns; ++i)
        signs.push_back(between(0, 1) ? 1.0f : -1.0f);
      projection.signs = signs.data();
    }
    vectors = random_floats(n_docs * n_features, scale);
    for (std::size_t i = 0; i < n_docs * n_features; ++i)
      halves.push_back(static_cast<std::uint16_t>(random_bits() & 0xBBFF));
    n_slots = n_docs;
    for (std::size_t i = 0; i < n_docs; ++i) {
      lists.push_back(static_cast<std::int32_t>(between(0, n_lists - 1) * between(0, 1)));  // the first list is long
      slots.push_back(static_cast<std::uint32_t>(n_docs - 1 - i));
    }
    queries = random_floats(n_queries * n_features, scale);
    coded_centroids = random_floats(n_lists * n_columns, scale);
    projected_centroids = random_floats(n_lists * n_bits, scale);
  }

  posh::Residuals residuals(std::size_t begin, std::size_t end) const {
    return {vectors.data() + begin * n_features,
            lists.data() + begin,
            slots.data() + begin,
            end - begin,
            n_features,
            centroids.data(),
            n_lists,
            reduction_or_null(),
            is_distance};
  }

  const posh::Reduction* reduction_or_null() const { return reduction.empty() ? nullptr : &reduced; }
};

template <class T>
std::shared_ptr<const T> copy_array(const T* from, std::size_t n) {
  T* copy = new T[n];
  std::copy_n(from, n, copy);
  return {copy, std::default_delete<T[]>()};
}

using Lists = std::shared_ptr<const posh::BlockLists>;

Lists separate_blocks(const posh::BlockLists& lists) {
  auto result = std::make_shared<posh::BlockLists>(lists);
  for (posh::Block& block : result->blocks) {
    block.memory = copy_array(block.memory.get(), lists.shape.bytes(block.n_docs));
    block.live = copy_array(block.live.get(), 4 * block.n_groups);
  }
  return result;
}

// Adds the documents up to each of `ends`, one batch after the other, and removes the marked ones after each batch.
Lists random_lists(const Case& c, const std::vector<std::size_t>& ends, const std::vector<std::uint8_t>& removed,
                   posh::EncodeFn encode) {
  auto empty = std::make_shared<posh::BlockLists>();
  empty->shape = c.shape;
  empty->first.assign(c.n_lists + 1, 0);
  Lists lists = empty;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    lists = separate_blocks(*posh::with_documents(*lists, c.projection, c.residuals(begin, end), encode, 2, nullptr));
    lists = posh::without_documents(*lists, removed.data(), removed.size());
    begin = end;
  }
  return lists;
}

posh::BlockSearch random_search(const Case& c, const posh::Router& router, const std::vector<std::uint8_t>& allowed) {
  posh::BlockSearch s{};
  s.router = &router;
  s.projection = &c.projection;
  s.queries = c.queries.data();
  s.n_queries = c.n_queries;
  s.k = between(0, 1) ? between(1, 10) : between(1, 400);
  s.n_probe = between(0, 1) * between(0, c.n_lists);
  s.reach = {one_of({1u, 6u, 37u}), one_of({0.0f, 1e-3f, 0.1f, 3.0f}), one_of({0.0f, 1.0f, 30.0f}) * c.scale};
  const std::size_t most = std::min<std::size_t>(c.shape.n_bits / 16, 15);
  s.n_plus = 16 * between(0, most);
  s.n_minus = 16 * between(s.n_plus == 0, most);
  s.n_scanned = between(std::max({s.n_plus, s.n_minus}), c.shape.n_bits);
  static const std::vector<std::int32_t> thresholds{0, 1, 4, 8, 16, 24, 32, 48};
  s.thresholds = thresholds.data();
  s.n_thresholds = between(2, thresholds.size());
  s.threshold_scale = one_of({0.0f, 0.1f, 1.0f, -1.0f});
  s.half_margin = one_of({0.0f, 1.5f, 4.0f});
  s.has_first = between(0, 1);
  s.first_intercept = one_of({0.0f, 1.0f, 1e30f}) * c.scale;
  s.first_slope = one_of({0.0f, 0.5f});
  s.n_keep = s.k + one_of<std::size_t>({0, 4, 50});
  s.stored = one_of({posh::Stored::float32, posh::Stored::float16, posh::Stored::residuals});
  if (s.stored == posh::Stored::residuals && c.reduction_or_null()) s.stored = posh::Stored::float32;
  s.vectors = s.stored == posh::Stored::float32   ? static_cast<const void*>(c.vectors.data())
              : s.stored == posh::Stored::float16 ? c.halves.data()
                                                  : nullptr;
  s.reducer = c.reducer ? &*c.reducer : nullptr;
  s.coded_centroids = c.coded_centroids.data();
  s.projected_centroids = c.projected_centroids.data();
  s.centroids = c.centroids.data();
  s.n_slots = c.n_slots;
  s.n_features = c.n_features;
  s.is_distance = c.is_distance;
  s.allowed = between(0, 1) ? allowed.data() : nullptr;
  s.min_shared = one_of({0.0f, 1.0f, 1e9f});
  return s;
}

}  // namespace
