// A search with fixed parameters: the one bound call of a search from Python.
#pragma once

#include <functional>
#include <optional>

#include "bindings.h"
#include "metric.h"

// Searches for prepared queries (n, n_features). `allowed` (n_slots) are the documents that may be found, or null.
// Returns false if a signal has stopped it.
using SearchFn = std::function<bool(const float* queries, std::size_t n, const std::uint8_t* allowed,
                                    std::int64_t* slots, float* scores)>;

class PreparedSearch {
 public:
  // Results are slots, or the ids (n_slots) of these slots. The caller keeps `metric` and all memory of `search` alive.
  PreparedSearch(const posh::Metric& metric, const posh::Kernels& kernel, std::size_t k, std::size_t n_slots,
                 std::optional<Vector<const std::int64_t>> ids, SearchFn search);

  // Searches for vectors (d,) or (n, d). Returns ids (n, k), scores (n, k), and the number of queries with fewer than k
  // results; or None if X is not a plain array of vectors, or if they have numbers that are too large or not finite.
  nb::object run(nb::handle X) const { return search_for(X, nullptr); }
  nb::object run_among(nb::handle X, Vector<const std::uint8_t> allowed) const;

 private:
  nb::object search_for(nb::handle X, const std::uint8_t* allowed) const;
  bool prepare_and_search(const posh::Reals& vectors, const std::uint8_t* allowed, std::int64_t* slots, float* scores,
                          bool& fits) const;
  std::size_t replace_slots(std::size_t n, std::int64_t* slots) const;

  const posh::Metric& metric_;
  posh::PrepareQueriesFn prepare_queries_;
  std::size_t k_, n_slots_;
  std::optional<Vector<const std::int64_t>> ids_;
  SearchFn search_;
};
