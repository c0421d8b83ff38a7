// The verbs of the native core and the table through which they are called.
//
// Every verb in the table exists at least twice: `scalar` is the specification, the others must equal it bit
// for bit. Callers allocate; OUT arguments are written completely. Nothing here checks its arguments:
// Python has refused bad input already, and bindings.cpp has compared the shapes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "threads.h"

namespace posh {

// (vectors - mean) * factor, computed as T and rounded to float; T is float or double.
//   IN  vectors  (n_rows, n_columns), row-major;   mean (n_columns)
//   OUT centred  (n_rows, n_columns), row-major
// Returns the largest magnitude, or NaN if there is one.
template <class T>
float centre(const T* vectors, std::size_t n_rows, std::size_t n_columns, const T* mean, T factor, float* centred);

// The `n_active` largest of each row's `n_bits` scores, as ascending bit numbers.
// Equal scores: the lower bit wins. -0.0 equals 0.0; NaN loses to everything.
//   IN  scores   (n_rows, n_bits), row-major;   n_bits <= 65536, 1 <= n_active <= n_bits
//   OUT winners  (n_rows, n_active), row-major
using WinnersFn = void (*)(const float* scores, std::size_t n_rows, std::size_t n_bits,
                           std::size_t n_active, std::uint16_t* winners);

// Bit-sliced documents: plane b holds bit b of every document, 64 documents to a word.
// Documents come in blocks of 256: bits past n_docs in the last block exist and are ignored.
struct Segment {
  const std::uint64_t* planes;  // (n_bits, stride) words, stride >= 4 * ceil(n_docs / 256), n_bits * stride < 2^32
  std::size_t stride;
  std::size_t n_docs;
  std::int64_t first_slot;      // document i has the slot first_slot + i, below 2^47; segments do not overlap
  const std::uint64_t* live;    // ceil(n_docs / 64) words, 1 = may be found; null = all of them
  const std::uint64_t* filter;  // likewise, for this search
};

// Sets the bits of documents first_doc, …, first_doc + n_codes - 1, which must be clear.
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
  Poll poll;                     // may be null
};

// The k documents that share the most bits with each query, among the live ones that pass the filter.
// Equal overlaps: the lower slot first. No overlap at all is a result as well.
//   OUT ids     (n_queries, k) slots;  -1 where fewer than k documents exist
//   OUT scores  (n_queries, k) overlaps;  -1 likewise
// Returns false, with OUT undefined, if poll asked to stop.
using OverlapTopkFn = bool (*)(const Search& search, std::int64_t* ids, std::int32_t* scores);

// The same among the documents of some segments, which may hold documents of any slots.
struct ListSearch : Search {
  const std::int64_t* const* slots;  // of the documents of each segment, below 2^47, all different
  const std::int64_t* offsets;       // query q visits the segments visits[offsets[q]], …, visits[offsets[q + 1] - 1],
  const std::int32_t* visits;        //   all different
};
using OverlapListsFn = bool (*)(const ListSearch& search, std::int64_t* ids, std::int32_t* scores);

// Scores that are sums over a code's bits: the sum of the query's table at the document's bits, less penalty[doc].
struct TableSearch {
  const std::uint16_t* codes;    // (n_docs, n_active), row-major
  std::size_t n_docs, n_active;
  const float* tables;           // (n_queries, n_bits), row-major, finite
  std::size_t n_queries, n_bits;
  const float* penalty;          // (n_docs), or null
  const std::uint64_t* passing;  // ceil(n_docs / 64) words, 1 = may be found; null = all of them
  std::size_t k;
  std::size_t n_threads;
  Poll poll;
};

// The k documents with the highest scores, for fewer than 2^32 documents. Equal scores: the lower slot first.
//   OUT ids     (n_queries, k);  -1 where fewer than k documents pass
//   OUT scores  (n_queries, k);  -inf likewise
// Returns false, with OUT undefined, if poll asked to stop.
using TableTopkFn = bool (*)(const TableSearch& search, std::int64_t* ids, float* scores);

// The scores of given documents: slots (n_queries, k), -1 gives -inf.
bool table_scores(const TableSearch& search, const std::int64_t* slots, float* scores);

struct Candidates {
  const std::int64_t* slots;  // (n_queries, n_candidates), below 2^32; -1 = none
  const float* scores;        // (n_queries, n_candidates), not NaN
  std::size_t n_queries, n_candidates;
  std::size_t k;
  std::size_t n_threads;
  Poll poll;
};

// The k candidates with the highest scores; OUT and order as in TableTopkFn.
bool best_candidates(const Candidates& candidates, std::int64_t* ids, float* scores);

struct HammingSearch {
  const std::uint8_t* codes;     // (n_docs, n_bytes), row-major
  std::size_t n_docs, n_bytes, n_bits;
  const std::uint8_t* queries;   // (n_queries, n_bytes), row-major
  std::size_t n_queries;
  const std::uint64_t* passing;  // as in TableSearch
  std::size_t k;
  std::size_t n_threads;
  Poll poll;
};

// The k documents with the most bits equal to the query's. Equal numbers: the lower slot first.
//   OUT ids, scores  (n_queries, k);  -1 where fewer than k documents pass
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
};

// All implementations that were compiled in, slowest first; the last supported one is the default.
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
bool table_topk_scalar(const TableSearch&, std::int64_t*, float*);
bool table_topk_portable(const TableSearch&, std::int64_t*, float*);
bool hamming_topk_scalar(const HammingSearch&, std::int64_t*, std::int32_t*);
bool hamming_topk_portable(const HammingSearch&, std::int64_t*, std::int32_t*);
bool hamming_topk_avx2(const HammingSearch&, std::int64_t*, std::int32_t*);

}  // namespace posh
