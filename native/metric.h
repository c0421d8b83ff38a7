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

// Vectors as the user gives them: (n, n_features) float or double, row-major.
struct Reals {
  const void* data;
  bool is_double;
  std::size_t n;
};

// Prepares documents for storage: unit length for cosines, otherwise (vector - mean) / unit. A zero vector stays zero.
//   IN  vectors  finite
//   OUT to       (n, n_features)
// Returns false if a number is 2^56 or more: squares would not fit into float.
using PrepareDocumentsFn = bool (*)(const Metric& metric, const Reals& vectors, float* to);

// Prepares queries for comparison with stored documents: unit length for cosines, a length from 1/2 to 1 by division by
// a power of two for products, and for distances like documents.
//   OUT to       (n, n_features)
//   OUT factors  (n): a score of the metric is the score of prepared vectors times this: a power of two, or 0
// Returns false if a number is not finite or too large, as above.
using PrepareQueriesFn = bool (*)(const Metric& metric, const Reals& vectors, float* to, double* factors);

// Converts scores (n, k) of prepared vectors to those of the metric, in place: multiplies row i by factors[i] and
// rounds to float. -inf is unchanged.
void scale_scores(const double* factors, std::size_t n, std::size_t k, float* scores);

bool prepare_documents_scalar(const Metric&, const Reals&, float*);
bool prepare_documents_avx2(const Metric&, const Reals&, float*);
bool prepare_queries_scalar(const Metric&, const Reals&, float*, double*);
bool prepare_queries_avx2(const Metric&, const Reals&, float*, double*);

}  // namespace posh
