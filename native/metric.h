// Prepares vectors for a metric, and converts their scores to those of the metric.
#pragma once

#include <cstddef>
#include <vector>

namespace posh {

struct Metric {
  enum class Kind { cosine, euclidean, dot } kind;
  std::vector<double> mean;  // (n_features), subtracted from vectors; zeros unless kind is euclidean
  double unit;               // of the stored numbers: 1 for cosines, otherwise a power of two whose inverse is finite
};

// Prepares documents for storage: unit length for cosines, otherwise (vector - mean) / unit. A zero vector stays zero.
//   IN  vectors  (n, n_features), float or double, finite
//   OUT to       (n, n_features)
// Returns false if a number is 2^56 or more: squares would not fit into float.
template <class T>
bool prepare_documents(const Metric& metric, const T* vectors, std::size_t n, float* to);

// Prepares queries for comparison with stored documents: unit length for cosines, a length from 1/2 to 1 by division by
// a power of two for products, and for distances like documents.
//   OUT factors  (n): a score of the metric is the score of prepared vectors times this: a power of two, or 0
// Returns false if a number is not finite or too large, as above.
template <class T>
bool prepare_queries(const Metric& metric, const T* vectors, std::size_t n, float* to, double* factors);

// Converts scores (n, k) of prepared vectors to those of the metric, in place: multiplies row i by factors[i] and
// rounds to float. -inf is unchanged.
void scale_scores(const double* factors, std::size_t n, std::size_t k, float* scores);

}  // namespace posh
