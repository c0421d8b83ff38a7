// The search in blocks with AVX2.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>
#include <vector>

#include "blocks.h"
#include "kernels.h"
#include "keys.h"

#include "avx2_begin.h"
#include "projection.h"
#include "block_search.h"
#include "block_adder.h"
#include "block_encode.h"
#include "block_avx2.h"

namespace posh {
bool search_blocks_avx2(const BlockSearch& search, std::int64_t* ids, float* scores) {
  return search_blocks<BlockAvx2>(search, ids, scores);
}
bool search_radius_avx2(const BlockSearch& search, std::vector<std::uint64_t>* found) {
  return search_radius<BlockAvx2>(search, found);
}
void sample_counts_avx2(const BlockSearch& search, std::size_t n_groups, std::uint64_t seed, float* expected,
                        float* counts) {
  compute_sample_counts<BlockAvx2>(search, n_groups, seed, expected, counts);
}
void routing_scores_avx2(const BlockSearch& search, float* scores) {
  compute_routing_scores<BlockAvx2>(search, scores);
}
void encode_docs_avx2(const BlockShape& shape, const Projection& projection, const Residuals& residuals,
                      const std::uint32_t* docs, std::size_t n, const BlockTarget& target) {
  encode_docs<BlockAvx2>(shape, projection, residuals, docs, n, target);
}
void project_rows_avx2(const Projection& projection, const float* vectors, std::size_t n_vectors, float* to) {
  project<BlockAvx2>(projection, vectors, n_vectors, to);
}
bool nearest_lists_avx2(const Routing& routing, std::int32_t* lists) {
  return nearest_lists<BlockAvx2>(routing, lists);
}

}  // namespace posh
#include "avx2_end.h"
#endif
