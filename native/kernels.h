// The functions of the native core, and the table of their implementations.
//
// Every function in the table has at least two implementations. `scalar` is the specification; the others must give
// the same bits. The caller allocates all memory, and OUT arguments are written completely. No function checks its
// arguments: Python has validated the input, and the bindings have compared the shapes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "blocks.h"
#include "graph.h"
#include "metric.h"
#include "threads.h"

namespace posh {

// Computes (vectors - mean) * factor as T and rounds it to float; T is float or double.
//   IN  vectors  (n_rows, n_columns), row-major;   mean (n_columns)
//   OUT centred  (n_rows, n_columns), row-major
// Returns the largest magnitude, or NaN if any result is NaN.
template <class T>
float centre(const T* vectors, std::size_t n_rows, std::size_t n_columns, const T* mean, T factor, float* centred);

// Finds the `n_active` largest of each row's `n_bits` scores, as ascending bit numbers.
// Equal scores: the lower bit wins. -0.0 equals 0.0; NaN loses to everything.
//   IN  scores   (n_rows, n_bits), row-major;   n_bits <= 65536, 1 <= n_active <= n_bits
//   OUT winners  (n_rows, n_active), row-major
using WinnersFn = void (*)(const float* scores, std::size_t n_rows, std::size_t n_bits, std::size_t n_active,
                           std::uint16_t* winners);

constexpr int slot_bits = 47;  // slots of an overlap search are below 2^47

// Bit-sliced documents: plane b holds bit b of every document, 64 documents to a word.
// Documents come in blocks of 256. Bits past n_docs in the last block exist and are ignored.
struct Segment {
  const std::uint64_t* planes;  // (n_bits, stride) words, stride >= 4 * ceil(n_docs / 256), n_bits * stride < 2^32
  std::size_t stride;
  std::size_t n_docs;
  std::int64_t first_slot;      // document i has the slot first_slot + i; slots of segments do not overlap
  const std::uint64_t* live;    // ceil(n_docs / 64) words, 0 = deleted; null = none is deleted
  const std::uint64_t* filter;  // ceil(n_docs / 64) words, 0 = excluded from this search; null = none is excluded
};

// Sets the bits of the documents first_doc, …, first_doc + n_codes - 1. All bits of these documents must be clear.
//   IN     codes   (n_codes, n_active), row-major, distinct bit numbers in each row
//   INOUT  planes  (n_bits, stride) words
void pack(const std::uint16_t* codes, std::size_t n_codes, std::size_t n_active, std::size_t first_doc,
          std::size_t stride, std::uint64_t* planes);

struct Search {
  const Segment* segments;
  std::size_t n_segments, n_bits;
  const std::uint16_t* queries;  // (n_queries, n_active), row-major, distinct bit numbers in each row
  std::size_t n_queries, n_active;
  std::size_t k;
  std::size_t n_threads;
  Poll poll;  // may be null
};

// Finds the k documents that share the most bits with each query, among the live ones that pass the filter.
// Equal overlaps: the lower slot first. Documents with an overlap of 0 are results, too.
//   OUT ids     (n_queries, k) slots;  -1 where fewer than k documents exist
//   OUT scores  (n_queries, k) overlaps;  -1 where fewer than k documents exist
// Returns false, with OUT undefined, if poll asked to stop.
using OverlapTopkFn = bool (*)(const Search& search, std::int64_t* ids, std::int32_t* scores);

// The same search, but each query visits only some segments, its lists. A list may hold documents of any slots.
// Query q visits the segments visits[offsets[q]], …, visits[offsets[q + 1] - 1], all different.
struct ListSearch : Search {
  const std::int64_t* const* slots;  // for each segment the ascending slots of its documents, in place of first_slot
  const std::int64_t* offsets;       // (n_queries + 1)
  const std::int32_t* visits;        // (offsets[n_queries]) numbers of segments
};
using OverlapListsFn = bool (*)(const ListSearch& search, std::int64_t* ids, std::int32_t* scores);

// Scores by a table: the sum of the query's table over the document's set bits, minus penalty[doc].
struct TableSearch {
  const std::uint16_t* codes;  // (n_docs, n_active), row-major
  std::size_t n_docs, n_active;
  const float* tables;  // (n_queries, n_bits), row-major, finite
  std::size_t n_queries, n_bits;
  const float* penalty;          // (n_docs), or null
  const std::uint64_t* passing;  // ceil(n_docs / 64) words, 1 = may be found; null = all may be found
  std::size_t k;
  std::size_t n_threads;
  Poll poll;
};

// Whether the document may be found, by a bitmap like TableSearch::passing. Internal linkage: see avx2_begin.h.
static inline bool passes(const std::uint64_t* bitmap, std::size_t doc) {
  return !bitmap || (bitmap[doc / 64] >> (doc % 64) & 1);
}

// Finds the k documents with the highest scores, for fewer than 2^32 documents. Equal scores: the lower slot first.
//   OUT ids     (n_queries, k) slots;  -1 where fewer than k documents pass
//   OUT scores  (n_queries, k);  -inf where fewer than k documents pass
// Returns false, with OUT undefined, if poll asked to stop.
using TableTopkFn = bool (*)(const TableSearch& search, std::int64_t* ids, float* scores);

// Computes the scores of chosen documents.
//   IN  slots   (n_queries, k);  -1 = no document
//   OUT scores  (n_queries, k);  -inf for no document
bool table_scores(const TableSearch& search, const std::int64_t* slots, float* scores);

struct Candidates {
  const std::int64_t* slots;  // (n_queries, n_candidates), below 2^32; -1 = no candidate
  const float* scores;        // (n_queries, n_candidates), not NaN
  std::size_t n_queries, n_candidates;
  std::size_t k;
  std::size_t n_threads;
  Poll poll;
};

// Finds the k candidates with the highest scores; OUT and order as in TableTopkFn.
bool best_candidates(const Candidates& candidates, std::int64_t* ids, float* scores);

struct HammingSearch {
  const std::uint8_t* codes;  // (n_docs, n_bytes), row-major
  std::size_t n_docs, n_bytes, n_bits;
  const std::uint8_t* queries;  // (n_queries, n_bytes), row-major
  std::size_t n_queries;
  const std::uint64_t* passing;  // as in TableSearch
  std::size_t k;
  std::size_t n_threads;
  Poll poll;
};

// Finds the k documents whose codes equal the query's in the most bits. Equal scores: the lower slot first.
//   OUT ids     (n_queries, k) slots;  -1 where fewer than k documents pass
//   OUT scores  (n_queries, k) numbers of equal bits;  -1 where fewer than k documents pass
// Returns false, with OUT undefined, if poll asked to stop.
using HammingTopkFn = bool (*)(const HammingSearch& search, std::int64_t* ids, std::int32_t* scores);

struct Kernels {
  const char* name;
  bool (*supported)();
  WinnersFn winners;
  OverlapTopkFn overlap_topk;
  OverlapListsFn overlap_lists;
  TableTopkFn table_topk;
  HammingTopkFn hamming_topk;
  SearchBlocksFn search_blocks;
  SearchRadiusFn search_radius;
  SampleCountsFn sample_counts;
  RoutingScoresFn routing_scores;
  EncodeFn encode_docs;
  NearestListFn nearest_lists;
  ProjectRowsFn project_rows;
  SearchGraphFn search_graph;
  BuildGraphFn build_graph;
  PrepareDocumentsFn prepare_documents;
  PrepareQueriesFn prepare_queries;
};

// All implementations of this build, slowest first. The default is the last one that this CPU supports.
extern const Kernels* const kernels;
extern const std::size_t n_kernels;

void winners_scalar(const float*, std::size_t, std::size_t, std::size_t, std::uint16_t*);
void winners_portable(const float*, std::size_t, std::size_t, std::size_t, std::uint16_t*);
void winners_avx2(const float*, std::size_t, std::size_t, std::size_t, std::uint16_t*);
bool overlap_topk_scalar(const Search&, std::int64_t*, std::int32_t*);
bool overlap_lists_scalar(const ListSearch&, std::int64_t*, std::int32_t*);
bool overlap_topk_portable(const Search&, std::int64_t*, std::int32_t*);
bool overlap_lists_portable(const ListSearch&, std::int64_t*, std::int32_t*);
bool overlap_topk_avx2(const Search&, std::int64_t*, std::int32_t*);
bool overlap_lists_avx2(const ListSearch&, std::int64_t*, std::int32_t*);
bool overlap_topk_avx512(const Search&, std::int64_t*, std::int32_t*);
bool overlap_lists_avx512(const ListSearch&, std::int64_t*, std::int32_t*);
bool table_topk_scalar(const TableSearch&, std::int64_t*, float*);
bool table_topk_portable(const TableSearch&, std::int64_t*, float*);
bool hamming_topk_scalar(const HammingSearch&, std::int64_t*, std::int32_t*);
bool hamming_topk_portable(const HammingSearch&, std::int64_t*, std::int32_t*);
bool hamming_topk_avx2(const HammingSearch&, std::int64_t*, std::int32_t*);

}  // namespace posh
