// How vectors are prepared for a metric, and how their scores become those of the metric.
#pragma once

#include <cstddef>
#include <vector>

namespace posh {

struct Metric {
  enum class Kind { cosine, euclidean, dot } kind;
  std::vector<double> mean;  // (n_features), subtracted from vectors; zeros but for distances
  double unit;               // of the stored numbers: 1 for cosines, otherwise a power of two whose inverse is finite
};

// Documents as they are stored: of unit length for cosines, otherwise (vector - mean) / unit. A zero vector stays zero.
//   IN  vectors  (n, n_features), float or double, finite
//   OUT to       (n, n_features)
// Returns false if a number is 2^56 or more: squares would not fit into float.
template <class T>
bool prepare_documents(const Metric& metric, const T* vectors, std::size_t n, float* to);

// Queries as they are compared with stored documents: of unit length for cosines, divided by a power of two to a length
// from 1/2 to 1 for products, and for distances like documents.
//   OUT factors  (n): a score of the metric is the score of prepared vectors times this: a power of two, or 0
// Returns false if a number is not finite or too large, as above.
template <class T>
bool prepare_queries(const Metric& metric, const T* vectors, std::size_t n, float* to, double* factors);

// Scores (n, k) of prepared vectors become those of the metric; the nearest that float has. -inf stays.
void give_back(const double* factors, std::size_t n, std::size_t k, float* scores);

}  // namespace posh
