// Blocks: the documents of lists, laid out so that a search reads little of each document.
//
// A search for the nearest documents filters in four steps, each on fewer documents than the one before:
//   1. Routing chooses the lists whose centroids are nearest to the query.
//   2. The code of a document is compared with the query's planes, 256 documents together.
//   3. The high halves of its 8-bit residual, then the low halves, give the score almost exactly.
//   4. The stored vector gives the exact score.
// The score of a document x in the list with the centroid c is query · x = query · c + query · (x - c). Codes and 8-bit
// numbers are those of the residual x - c. Of wide vectors they are those of the residual's principal components: see
// `Reduction`.
//
// For distances the score is -|query - x|² / 2 = -|query - c|² / 2 + (query - c) · (x - c) - |x - c|² / 2. The last
// term is the offset of a document. Residuals are multiplied by query - c, which differs from list to list. For nearby
// lists it is much shorter than the query, so that codes and 8-bit numbers estimate the products much better.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

#include "threads.h"

namespace posh {

constexpr std::size_t group_docs = 256;  // documents that are compared together
constexpr std::size_t max_groups = 8;    // in a block
constexpr std::size_t max_block_docs = group_docs * max_groups;
constexpr std::size_t group_bytes = group_docs / 8;

// Below this, floats lose digits: the largest value divided by 127 and multiplied by 127 could differ from it.
constexpr float smallest_unit = std::numeric_limits<float>::min();

struct Fit {
  float scale, offset;  // the score of a document is that of its list + query · residual + offset
};

// A value of each document, `stride` bytes apart.
template <class T>
struct Column {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::uint8_t, std::uint8_t>;
  Byte* first;
  std::size_t stride;
  T& operator[](std::size_t doc) const { return *reinterpret_cast<T*>(first + doc * stride); }
};

// Sizes that all blocks of an index share, and the places of the parts of a block: see Block.
struct BlockShape {
  std::size_t n_bits;     // of a code; a multiple of 32
  std::size_t n_active;   // set bits of a document's code
  std::size_t n_columns;  // 8-bit numbers of a residual
  std::size_t n_stored;   // columns that a residual has room for: n_columns; in old files width()

  std::size_t width() const { return (n_columns + 63) / 64 * 64; }  // columns that kernels read
  std::size_t full() const { return width() - 64; }                 // columns before the last 64
  std::size_t tail() const { return (n_stored - full() + 1) / 2; }  // bytes that hold one half of the last columns
  std::size_t half_bytes() const { return full() / 2 + tail(); }    // of one half of a residual
  std::size_t high_stride() const { return width() / 2; }
  bool is_joined() const { return high_stride() - half_bytes() >= rest_bytes; }

  std::size_t byte_of(std::size_t column) const {
    if (column < full()) return column / 64 * 32 + column % 32;
    return full() / 2 + (column - full()) - (is_upper(column) ? tail() : 0);
  }
  bool is_upper(std::size_t column) const { return column < full() ? column % 64 >= 32 : column - full() >= tail(); }

  static std::size_t n_groups(std::size_t n_docs) { return (n_docs + group_docs - 1) / group_docs; }
  std::size_t high_at(std::size_t n_docs) const { return n_bits * group_bytes * n_groups(n_docs); }
  std::size_t low_at(std::size_t n_docs) const { return high_at(n_docs) + n_docs * high_stride(); }
  std::size_t rest_at(std::size_t n_docs) const {  // kernels read past the last low half
    return (low_at(n_docs) + n_docs * half_bytes() + high_stride() - half_bytes() + 3) / 4 * 4;
  }
  std::size_t bytes(std::size_t n_docs) const {  // of a block
    constexpr std::size_t line = 64;
    return (rest_at(n_docs) + (is_joined() ? 0 : n_docs * rest_bytes) + line - 1) / line * line;
  }

  template <class Byte>
  auto fits(Byte* memory, std::size_t n_docs) const {
    using T = std::conditional_t<std::is_const_v<Byte>, const Fit, Fit>;
    if (is_joined()) return Column<T>{memory + high_at(n_docs) + high_stride() - rest_bytes, high_stride()};
    return Column<T>{memory + rest_at(n_docs), sizeof(Fit)};
  }
  template <class Byte>
  auto slots(Byte* memory, std::size_t n_docs) const {
    using T = std::conditional_t<std::is_const_v<Byte>, const std::uint32_t, std::uint32_t>;
    if (is_joined()) return Column<T>{memory + high_at(n_docs) + high_stride() - sizeof(T), high_stride()};
    return Column<T>{memory + rest_at(n_docs) + n_docs * sizeof(Fit), sizeof(T)};
  }

 private:
  static constexpr std::size_t rest_bytes = sizeof(Fit) + sizeof(std::uint32_t);
};

// Up to max_block_docs documents of one list. The memory is one array of BlockShape::bytes(n_docs) bytes:
//   planes  (n_bits, 32 * n_groups) bytes   bit i % 8 of byte i / 8 in row b: whether document i has bit b
//   high    (n_docs, width / 2) bytes       the high four bits of each residual number plus 128
//   low     (n_docs, half_bytes) bytes      the low four bits; then width / 2 - half_bytes unused bytes
//   fits    (n_docs) Fit                    residual = scale * (16 * high + low - 128)
//   slots   (n_docs) uint32
// Byte b of the 32 bytes that hold the columns 64 g to 64 g + 63: column 64 g + b in the lower four bits, column
// 64 g + 32 + b in the upper four. The last columns are in `tail` bytes instead of 32.
// Rows of high halves keep their padding, so that they do not cross cache lines. If it has room for them (is_joined),
// the fit and the slot of a document are its last 12 bytes, and there are no arrays of fits and slots.

// Bounds over the documents of a group, including removed ones.
struct GroupRange {
  float shortest, longest;  // lengths of residuals, above 0
  float offset;             // the highest; for distances without the part -length² / 2
};

struct Block {
  std::shared_ptr<const std::uint8_t> memory;
  std::shared_ptr<const std::uint64_t> live;  // 4 * n_groups words, 0 = removed or no document
  std::uint32_t n_docs = 0, n_groups = 0, n_live = 0;
  GroupRange ranges[max_groups] = {};  // of each group

  const std::uint8_t* planes() const { return memory.get(); }
  const std::uint8_t* high(const BlockShape& shape) const { return planes() + shape.high_at(n_docs); }
  const std::uint8_t* low(const BlockShape& shape) const { return planes() + shape.low_at(n_docs); }
  Column<const Fit> fits(const BlockShape& shape) const { return shape.fits(planes(), n_docs); }
  Column<const std::uint32_t> slots(const BlockShape& shape) const { return shape.slots(planes(), n_docs); }
};

// Projects residuals and queries to n_bits numbers. A code has the bits of the n_active largest.
// Either weights (n_bits, n_columns), or signs: n_bits / size Hadamard matrices of `size` rows, a power of two. Matrix
// m is applied to the columns times row m of signs (n_bits / size, n_columns); columns from `size` on are folded back.
struct Projection {
  std::size_t n_bits, n_columns;
  const float* weights;
  const float* signs;
  std::size_t size;
};

// Projects vectors (n_vectors, n_columns).
//   OUT to  (n_vectors, n_bits)
using ProjectRowsFn = void (*)(const Projection& projection, const float* vectors, std::size_t n_vectors, float* to);

// Allocates at the start of a cache line, so that no load crosses into the next one.
template <class T>
struct LineAllocator {
  using value_type = T;
  T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t{64})); }
  void deallocate(T* memory, std::size_t) { ::operator delete(memory, std::align_val_t{64}); }
  bool operator==(const LineAllocator&) const { return true; }
  bool operator!=(const LineAllocator&) const { return false; }
};

// Centroids as 7-bit numbers. The routing score of list l is step[l] * (sum of number * query) + bias[l].
struct Router {
  std::size_t n_lists, n_columns;
  std::vector<std::uint8_t, LineAllocator<std::uint8_t>> numbers;  // (n_groups(), n_quads(), 8, 4), each plus 64
  std::vector<float> step, bias;                                   // (n_lists rounded up to 8)

  //   IN centroids (n_lists, n_columns), bias (n_lists)
  Router(const float* centroids, const float* bias, std::size_t n_lists, std::size_t n_columns);
  std::size_t n_groups() const { return (n_lists + 7) / 8; }
  std::size_t n_quads() const { return (n_columns + 3) / 4; }
};

// Reduces vectors with many columns to their products with n_columns orthonormal rows (n_columns, n_features).
// Queries are reduced with 8-bit numbers, by a Router whose centroids are these rows: a fifth of the time, and hardly
// less precise than the 8-bit numbers to which the products are quantised.
struct Reduction {
  const float* rows;
  std::size_t n_columns, n_features;
};

// Documents to be added: vectors (n_docs, n_features), their lists and slots.
struct Residuals {
  const float* vectors;
  const std::int32_t* lists;
  const std::uint32_t* slots;
  std::size_t n_docs, n_features;
  const float* centroids;  // (n_lists, n_features)
  std::size_t n_lists;
  const Reduction* reduction;  // or null
  bool is_distance;
};

// The memory of a block whose documents from first_doc on are still to be written.
struct BlockTarget {
  std::uint8_t *planes, *high, *low;
  Column<Fit> fits;
  Column<std::uint32_t> slots;
  std::size_t n_groups, first_doc;
  GroupRange* ranges;  // (n_groups), of the documents before first_doc
};

// Writes n documents of one list, numbers into `residuals`.
using EncodeFn = void (*)(const BlockShape& shape, const Projection& projection, const Residuals& residuals,
                          const std::uint32_t* docs, std::size_t n, const BlockTarget& target);

// Finds the nearest list of each vector (n_vectors, n_columns): the highest routing score; of equal scores, the lower
// list.
struct Routing {
  const Router* router;
  const float* vectors;
  std::size_t n_vectors;
  std::size_t n_threads;
  Poll poll;
};
//   OUT lists  (n_vectors)
// Returns false, with OUT undefined, if poll asked to stop.
using NearestListFn = bool (*)(const Routing& routing, std::int32_t* lists);

// All blocks of an index by list, immutable.
struct BlockLists {
  BlockShape shape;
  std::vector<Block> blocks;
  std::vector<std::uint32_t> first;  // (n_lists + 1): list l has the blocks first[l], …, first[l + 1] - 1
  std::vector<float> n_live;         // (n_lists rounded up to 8) live documents of each list
  std::size_t n_lists() const { return first.size() - 1; }
};

// The form in which vectors are stored for the last step.
enum class Stored { float32, float16, residuals };  // residuals: only without a reduction

// Chooses the lists that a query visits. A list whose routing score is `gap` below the best one gets the weight
//   (1 + gap / c)^-power,  c = |query| * spread for products, (D² + spread²) / 2 for distances,
// where D is the distance to the best centroid. A query visits the lists whose weight is at least `bound` times the sum
// of weights over all live documents. So it visits more lists if many are equally near.
struct Reach {
  unsigned power;
  float bound, spread;
};

struct BlockSearch {
  const BlockLists* lists;
  const Router* router;
  const Projection* projection;
  const Router* reducer;  // its routing scores are the reduced query; or null
  const float* queries;   // (n_queries, n_features)
  std::size_t n_queries, k;
  std::size_t n_probe;  // lists to visit; 0: those that Reach chooses
  Reach reach;
  std::size_t n_plus, n_minus;     // planes of the query's largest and smallest projections; multiples of 16
  std::size_t n_scanned;           // these planes are among the first n_scanned bits: fewer planes stay in the cache
  const std::int32_t* thresholds;  // (n_thresholds) the count that a document needs, by the product that it must have:
  std::size_t n_thresholds;        // see threshold_of. The first is 0.
  float threshold_scale;
  float half_margin;  // deviations by which a score from high halves may be too low
  // The k-th best score probably exceeds intercept + slope * best list's score; for products, intercept * |query|.
  float first_intercept, first_slope;
  bool has_first;      // whether there is a first limit
  std::size_t n_keep;  // documents for the last step, at least k
  // For a search of all documents that reach a bound, which has no k and no n_keep; otherwise null.
  const float* bounds;  // (n_queries) of the scores of the last step
  float margin;         // by which 8-bit scores may be too low, divided by the length of the vector that is compared
  Stored stored;
  const void* vectors;               // (n_slots, n_features) float or half; null for Stored::residuals
  const float* centroids;            // (n_lists, n_features)
  const float* coded_centroids;      // for distances: (n_lists, n_columns), after the reduction
  const float* projected_centroids;  // for distances: (n_lists, n_bits)
  std::size_t n_slots, n_features;
  bool is_distance;             // the last step gives minus the squared distance, otherwise the product
  const std::uint8_t* allowed;  // (n_slots) 0 or 1, or null: all
  float min_shared;  // from this number of visits per list on, queries visit lists together; does not change results
  std::size_t n_threads;
  Poll poll;
};

// Finds the k documents with the highest scores among the live and allowed documents of the visited lists.
//   OUT ids     (n_queries, k) slots;  -1 where fewer than k documents were found
//   OUT scores  (n_queries, k);  -inf where fewer than k documents were found
// Returns false, with OUT undefined, if poll asked to stop. Throws std::out_of_range if a slot is not below n_slots.
using SearchBlocksFn = bool (*)(const BlockSearch& search, std::int64_t* ids, float* scores);

// Finds all live and allowed documents of the visited lists whose scores reach the bounds.
//   OUT found  (n_queries) the descending keys of scores and slots (keys.h), the best first
// Returns false, with OUT undefined, if poll asked to stop. Throws std::out_of_range if a slot is not below n_slots.
using SearchRadiusFn = bool (*)(const BlockSearch& search, std::vector<std::uint64_t>* found);

// Samples how counts depend on scores: for each query and n_groups random groups of the lists that it visits, takes the
// document of the group with the highest 8-bit score.
//   OUT expected  (n_queries, n_groups) product * reach / length: the cosine of the two, times the query's reach
//   OUT counts    (n_queries, n_groups) its count minus that of an unrelated document; both NaN for an empty group
using SampleCountsFn = void (*)(const BlockSearch& search, std::size_t n_groups, std::uint64_t seed, float* expected,
                                float* counts);

// Computes the routing scores of all lists, -inf for a list without live documents. Uses only the queries of `search`.
//   OUT scores  (n_queries, n_lists)
using RoutingScoresFn = void (*)(const BlockSearch& search, float* scores);

// Writes the list of each live document.
//   OUT list_of  (n_slots) -1 for a slot without a live document
void lists_of_slots(const BlockLists& lists, std::int32_t* list_of, std::size_t n_slots);

// Counts the documents of each list.
//   OUT n_live   (n_lists)
//   OUT n_stored (n_lists) removed ones, whose memory is still in use, included
void count_documents(const BlockLists& lists, std::int64_t* n_live, std::int64_t* n_stored);

// Returns the slots of the live documents of the chosen lists, one list after the other.
std::vector<std::uint32_t> slots_of_lists(const BlockLists& lists, const std::int32_t* chosen, std::size_t n_chosen);

// Returns n_lists lists: list l has the blocks of sources[l], or none if that is negative. Shares the blocks.
std::shared_ptr<const BlockLists> rearranged_lists(const BlockLists& lists, const std::int32_t* sources,
                                                   std::size_t n_lists);

// Returns the lists with further documents. Shares the blocks that do not change. Returns null if poll asked to stop.
std::shared_ptr<const BlockLists> with_documents(const BlockLists& lists, const Projection& projection,
                                                 const Residuals& residuals, EncodeFn encode, std::size_t n_threads,
                                                 Poll poll);

// Sets n_live of each list from its blocks.
void count_live(BlockLists& lists);

// Returns the lists without the documents whose slots are marked: removed (n_slots) 0 or 1.
std::shared_ptr<const BlockLists> without_documents(const BlockLists& lists, const std::uint8_t* removed,
                                                    std::size_t n_slots);

// All blocks as plain arrays, for files.
struct BlockArrays {
  std::shared_ptr<const std::uint8_t> memory;  // (n_bytes) one block after the other; aligned to 4 bytes
  const std::int64_t* table;                   // (n_blocks, 3) where its memory begins, list, n_docs; lists ascend
  const float* groups;                         // (n_blocks, max_groups, 3) the ranges
  std::shared_ptr<const std::uint64_t> live;   // (n_words) one block after the other
  std::size_t n_bytes, n_blocks, n_words;
};
struct ArraySizes {
  std::size_t n_bytes, n_blocks, n_words;
};
ArraySizes array_sizes(const BlockLists& lists);
void copy_to_arrays(const BlockLists& lists, std::uint8_t* memory, std::int64_t* table, float* groups,
                    std::uint64_t* live);

// Returns blocks that refer to these arrays, or null if the arrays contradict each other. Does not read `memory`.
std::shared_ptr<const BlockLists> open_arrays(const BlockShape& shape, std::size_t n_lists, const BlockArrays& arrays);

bool search_blocks_scalar(const BlockSearch&, std::int64_t*, float*);
bool search_blocks_portable(const BlockSearch&, std::int64_t*, float*);
bool search_blocks_avx2(const BlockSearch&, std::int64_t*, float*);
bool search_blocks_avx512(const BlockSearch&, std::int64_t*, float*);
bool search_radius_scalar(const BlockSearch&, std::vector<std::uint64_t>*);
bool search_radius_portable(const BlockSearch&, std::vector<std::uint64_t>*);
bool search_radius_avx2(const BlockSearch&, std::vector<std::uint64_t>*);
bool search_radius_avx512(const BlockSearch&, std::vector<std::uint64_t>*);
void sample_counts_scalar(const BlockSearch&, std::size_t, std::uint64_t, float*, float*);
void sample_counts_avx2(const BlockSearch&, std::size_t, std::uint64_t, float*, float*);
void routing_scores_scalar(const BlockSearch&, float*);
void routing_scores_avx2(const BlockSearch&, float*);
void encode_docs_scalar(const BlockShape&, const Projection&, const Residuals&, const std::uint32_t*, std::size_t,
                        const BlockTarget&);
void encode_docs_avx2(const BlockShape&, const Projection&, const Residuals&, const std::uint32_t*, std::size_t,
                      const BlockTarget&);
void project_rows_scalar(const Projection&, const float*, std::size_t, float*);
void project_rows_avx2(const Projection&, const float*, std::size_t, float*);
bool nearest_lists_scalar(const Routing&, std::int32_t*);
bool nearest_lists_avx2(const Routing&, std::int32_t*);

}  // namespace posh
