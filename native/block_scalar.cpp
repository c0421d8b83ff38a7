// The search in blocks for any CPU.
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

#include "projection.h"
#include "block_search.h"
#include "block_plain.h"
#include "block_adder.h"
#include "block_encode.h"

namespace posh {
namespace {

struct BlockScalar : BlockPlain {
  static constexpr WinnersFn winners = winners_scalar;
};

// 256 documents as four words.
struct FourWords {
  static constexpr std::size_t n_groups = 1;
  std::uint64_t words[4];
  static FourWords load(const std::uint8_t* bytes) {
    FourWords v;
    std::memcpy(v.words, bytes, sizeof v.words);
    return v;
  }
  static FourWords all(bool bit) {
    const std::uint64_t word = bit ? ~std::uint64_t{0} : 0;
    return {{word, word, word, word}};
  }
  static FourWords bit_of(const std::uint32_t* starts, int bit) { return all(*starts >> bit & 1); }
  void store(std::uint64_t* to) const { std::memcpy(to, words, sizeof words); }
  template <class Operation>
  static FourWords each(const FourWords& a, const FourWords& b, Operation operation) {
    FourWords v;
    for (int i = 0; i < 4; ++i) v.words[i] = operation(a.words[i], b.words[i]);
    return v;
  }
  friend FourWords operator&(const FourWords& a, const FourWords& b) {
    return each(a, b, [](std::uint64_t x, std::uint64_t y) { return x & y; });
  }
  friend FourWords operator|(const FourWords& a, const FourWords& b) {
    return each(a, b, [](std::uint64_t x, std::uint64_t y) { return x | y; });
  }
  friend FourWords operator^(const FourWords& a, const FourWords& b) {
    return each(a, b, [](std::uint64_t x, std::uint64_t y) { return x ^ y; });
  }
};

struct BlockPortable : BlockPlain {
  static constexpr WinnersFn winners = winners_portable;
  static void masks(const BlockScan& scan, std::uint64_t* masks) { count_planes<FourWords>(scan, masks); }
};

}  // namespace

bool search_blocks_scalar(const BlockSearch& search, std::int64_t* ids, float* scores) {
  return search_blocks<BlockScalar>(search, ids, scores);
}
bool search_radius_scalar(const BlockSearch& search, std::vector<std::uint64_t>* found) {
  return search_radius<BlockScalar>(search, found);
}
bool search_blocks_portable(const BlockSearch& search, std::int64_t* ids, float* scores) {
  return search_blocks<BlockPortable>(search, ids, scores);
}
bool search_radius_portable(const BlockSearch& search, std::vector<std::uint64_t>* found) {
  return search_radius<BlockPortable>(search, found);
}
void sample_counts_scalar(const BlockSearch& search, std::size_t n_groups, std::uint64_t seed, float* expected,
                          float* counts) {
  compute_sample_counts<BlockScalar>(search, n_groups, seed, expected, counts);
}
void routing_scores_scalar(const BlockSearch& search, float* scores) {
  compute_routing_scores<BlockScalar>(search, scores);
}
void encode_docs_scalar(const BlockShape& shape, const Projection& projection, const Residuals& residuals,
                        const std::uint32_t* docs, std::size_t n, const BlockTarget& target) {
  encode_docs<BlockScalar>(shape, projection, residuals, docs, n, target);
}
void project_rows_scalar(const Projection& projection, const float* vectors, std::size_t n_vectors, float* to) {
  project<BlockScalar>(projection, vectors, n_vectors, to);
}
bool nearest_lists_scalar(const Routing& routing, std::int32_t* lists) {
  return nearest_lists<BlockScalar>(routing, lists);
}

}  // namespace posh
