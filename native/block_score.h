// Scans blocks, and scores the documents that pass: by the high halves of their numbers, then by the whole numbers, and
// finally by their vectors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <vector>

#include "block_state.h"
#include "keys.h"

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

template <class Isa>
class BlockScoring {
 public:
  BlockScoring(const BlockSearch& search, Workspace& workspace)
      : s(search), shape(search.lists->shape), w(workspace), n_planes(search.n_plus + search.n_minus) {
    const float active = static_cast<float>(shape.n_active) / static_cast<float>(shape.n_bits);
    middle = active * static_cast<float>(s.n_plus) + (1.0f - active) * static_cast<float>(s.n_minus);
    w.allowed.clear();
    if (s.allowed) w.allowed.resize(s.lists->blocks.size());
  }

  // The expected count of a document that is unrelated to the query.
  float expected_count() const { return middle; }

  // Writes 4 words for each group: which documents have the count that query.scan_limit requires.
  // Prefetches the rows of the block `next`, if there is one.
  void scan(const Block& block, const Query& query, const std::uint32_t* rows, const Block* next,
            const std::uint32_t* next_rows, std::uint64_t* to) const {
    std::int32_t thresholds[max_groups];
    for (std::size_t g = 0; g < block.n_groups; ++g) thresholds[g] = threshold_of(query, block.ranges[g]);
    Isa::masks({block.planes(), rows, s.n_plus, s.n_minus, thresholds, block.n_groups, next ? next->planes() : nullptr,
                next_rows, next ? (next->n_groups + 1u) / 2 : 0},
               to);
  }

  // The offsets of the rows of a view's planes in a block of n_groups groups.
  const std::uint32_t* rows_for(const View& view, std::size_t n_groups, std::vector<std::uint32_t>& to) const {
    std::uint32_t* rows = reserve(to, n_planes);
    const std::uint32_t* from = view.planes;
    const std::uint32_t bytes = static_cast<std::uint32_t>(n_groups * group_bytes);
    for (std::size_t j = 0; j < n_planes; ++j) rows[j] = from[j] * bytes;
    return rows;
  }

  // The documents of a block that may be found, 4 words for each group; null if there are none.
  const std::uint64_t* live_words(std::uint32_t number) {
    const Block& block = s.lists->blocks[number];
    if (!block.n_live) return nullptr;
    if (!s.allowed) return block.live.get();
    std::vector<std::uint64_t>& words = w.allowed[number];
    if (words.empty()) {
      words.assign(block.live.get(), block.live.get() + 4 * block.n_groups);
      const Column<const std::uint32_t> slots = block.slots(shape);
      for (std::size_t doc = 0; doc < block.n_docs; ++doc) {
        if (slots[doc] >= s.n_slots) throw std::out_of_range("blocks: slots");
        if (!s.allowed[slots[doc]]) words[doc / 64] &= ~(std::uint64_t{1} << doc % 64);
      }
      if (std::all_of(words.begin(), words.end(), [](std::uint64_t word) { return word == 0; })) words.resize(1);
    }
    return words.size() == 1 ? nullptr : words.data();
  }

  // Writes start + i for each document i of a block that is set in both its mask and `live`; returns the end.
  static std::uint32_t* expand(std::uint64_t* mask, const std::uint64_t* live, std::size_t n_groups,
                               std::uint32_t start, std::uint32_t* to) {
    for (std::size_t g = 0; g < n_groups; ++g) {
      for (std::size_t word = 4 * g; word < 4 * g + 4; ++word) mask[word] &= live[word];
      to = Isa::expand(mask + 4 * g, start + static_cast<std::uint32_t>(g * group_docs), to);
    }
    return to;
  }

  // Scores pairs (query << doc_bits | document) of one block, and keeps the best. `pairs` has room for n + spare.
  template <class QueryOf>
  void score(std::uint32_t number, std::uint32_t* pairs, std::size_t n, QueryOf query_of) {
    if (!n) return;
    reserve(w.survivors, n);
    sift(s.lists->blocks[number], pairs, n, query_of);
    score_survivors(number, query_of);
  }

  // The length of a document's residual, from its 8-bit numbers.
  float length(const Block& block, std::size_t doc) const {
    const std::uint8_t *high = block.high(shape) + doc * shape.high_stride(),
                       *low = block.low(shape) + doc * shape.half_bytes();
    std::int32_t sum = 0;
    for (std::size_t byte = 0; byte < shape.half_bytes(); ++byte)
      for (const int shift : {0, 4}) {
        const std::int32_t number = 16 * (high[byte] >> shift & 15) + (low[byte] >> shift & 15) - 128;
        sum += number * number;
      }
    return block.fits(shape)[doc].scale * std::sqrt(static_cast<float>(sum));
  }

  // The product of a view and a document's residual, from their 8-bit numbers.
  float product(const View& view, const Block& block, std::size_t doc) const {
    const std::int32_t sum = 16 * half_sum(block.high(shape) + doc * shape.high_stride(), view) +
                             half_sum(block.low(shape) + doc * shape.half_bytes(), view);
    return static_cast<float>(sum - view.sum) * (block.fits(shape)[doc].scale * view.unit);
  }

 private:
  std::int32_t half_sum(const std::uint8_t* halves, const View& view) const {
    return Isa::half_sum(halves, view.numbers, shape.width(), shape.tail());
  }

  // The threshold of a group: nearly all documents that reach the limit have at least this count. It follows from the
  // smallest cosine with which a document of the group can reach the limit. For distances and a length l, that cosine
  // is (needed + l² / 2) / (l |query - c|), which is smallest for l² = 2 * needed.
  std::int32_t threshold_of(const Query& query, const GroupRange& range) const {
    const float scale = query.view.reach * s.threshold_scale;
    if (!(scale > 0.0f)) return s.thresholds[0];  // the count carries no information about the score
    const float needed = query.scan_limit - (query.view.list_score + range.offset);
    float length = range.shortest, product = needed;
    if (needed > 0.0f)
      length = s.is_distance ? std::clamp(std::sqrt(2.0f * needed), range.shortest, range.longest) : range.longest;
    if (s.is_distance) product += 0.5f * length * length;
    const float place = product * scale / length + static_cast<float>(s.n_thresholds / 2);
    if (!(place >= 1.0f)) return s.thresholds[0];  // or NaN
    return s.thresholds[std::min(static_cast<std::size_t>(std::min(place, 1e6f)), s.n_thresholds - 1)];
  }

  // Writes the pairs whose high halves may be good enough to w.survivors.
  template <class QueryOf>
  void sift(const Block& block, std::uint32_t* pairs, std::size_t n, QueryOf query_of) {
    switch (shape.width()) {  // the compiler unrolls the loops over few columns
      case 64: return sift_columns<64>(block, pairs, n, query_of);
      case 128: return sift_columns<128>(block, pairs, n, query_of);
      case 192: return sift_columns<192>(block, pairs, n, query_of);
      case 256: return sift_columns<256>(block, pairs, n, query_of);
      default: return sift_columns<0>(block, pairs, n, query_of);
    }
  }

  template <std::size_t Width, class QueryOf>
  __attribute__((noinline)) void sift_columns(const Block& block, std::uint32_t* p, std::size_t n, QueryOf query_of) {
    const std::uint8_t *high = block.high(shape), *low = block.low(shape);
    const Column<const Fit> fits = block.fits(shape);
    const Column<const std::uint32_t> slots = block.slots(shape);
    const std::size_t width = Width ? Width : shape.width(), bytes = width / 2, tail = shape.tail(),
                      low_bytes = shape.half_bytes();
    const bool is_joined = shape.is_joined(), crosses_lines = low_bytes % 32 != 0;
    constexpr std::uint32_t doc_mask = max_block_docs - 1;
    constexpr std::size_t ahead = 12;  // pairs to prefetch
    static_assert(ahead + 4 <= spare);
    for (std::size_t i = 0; i < ahead + 4; ++i) p[n + i] = p[n - 1];
    Survivor* to = w.survivors.data();
    for (std::size_t i = 0; i < n; i += 4) {
      for (std::size_t j = i + ahead; j < i + ahead + 4; ++j) __builtin_prefetch(high + (p[j] & doc_mask) * bytes);
      const std::uint32_t d0 = p[i] & doc_mask, d1 = p[i + 1] & doc_mask, d2 = p[i + 2] & doc_mask,
                          d3 = p[i + 3] & doc_mask;
      const Query *q0 = query_of(p[i] >> doc_bits), *q1 = query_of(p[i + 1] >> doc_bits),
                  *q2 = query_of(p[i + 2] >> doc_bits), *q3 = query_of(p[i + 3] >> doc_bits);
      std::int32_t sums[4];
      unsigned good = Isa::above({high + d0 * bytes, high + d1 * bytes, high + d2 * bytes, high + d3 * bytes},
                                 {q0, q1, q2, q3}, {fits[d0], fits[d1], fits[d2], fits[d3]}, width, tail, sums);
      if (n - i < 4) good &= (1u << (n - i)) - 1;
      for (; good; good &= good - 1) {
        const unsigned j = static_cast<unsigned>(__builtin_ctz(good));
        *to++ = {p[i + j], sums[j]};
        __builtin_prefetch(low + (p[i + j] & doc_mask) * low_bytes);
        if (crosses_lines) __builtin_prefetch(low + (p[i + j] & doc_mask) * low_bytes + low_bytes - 1);
        if (!is_joined) __builtin_prefetch(&slots[p[i + j] & doc_mask]);
      }
    }
    w.n_survivors = static_cast<std::size_t>(to - w.survivors.data());
  }

  // Computes the 8-bit scores of the survivors, and keeps the best.
  template <class QueryOf>
  void score_survivors(std::uint32_t number, QueryOf query_of) {
    const Block& block = s.lists->blocks[number];
    const std::uint8_t* low = block.low(shape);
    const Column<const Fit> fits = block.fits(shape);
    for (std::size_t i = 0; i < w.n_survivors; ++i) {
      const std::uint32_t doc = w.survivors[i].pair & (max_block_docs - 1);
      Query& query = *query_of(w.survivors[i].pair >> doc_bits);
      const std::int32_t sum = 16 * w.survivors[i].high_sum + half_sum(low + doc * shape.half_bytes(), query.view);
      const float score = static_cast<float>(sum - query.view.sum) * (fits[doc].scale * query.view.unit) +
                          (fits[doc].offset + query.view.list_score);
      if (score >= query.entry) keep(query, score, number, doc);
    }
  }

  void keep(Query& query, float score, std::uint32_t number, std::uint32_t doc) {
    const std::uint32_t slot = s.lists->blocks[number].slots(shape)[doc];
    if (slot >= s.n_slots) throw std::out_of_range("blocks: slots");
    const std::uint64_t key = score_key(score, slot);
    if (s.bounds) return w.reaching[query.index].push_back({key, number, doc});
    Candidate* candidates = &w.kept[query.index * s.n_keep];
    if (query.n_kept == s.n_keep && key <= candidates[s.n_keep - 1].key) return;
    std::size_t at = query.n_kept < s.n_keep ? query.n_kept++ : s.n_keep - 1;
    for (; at > 0 && candidates[at - 1].key < key; --at) candidates[at] = candidates[at - 1];
    candidates[at] = {key, number, doc};
    if (query.n_kept == s.n_keep) query.entry = std::max(query.entry, score_of_key(candidates[s.n_keep - 1].key));
    if (query.n_kept >= s.k) query.limit = std::max(query.limit, score_of_key(candidates[s.k - 1].key));
  }

  const BlockSearch& s;
  const BlockShape& shape;
  Workspace& w;
  const std::size_t n_planes;
  float middle;
};

// The last step: compares the candidates of a query by their vectors.
template <class Isa>
class ExactScoring {
 public:
  ExactScoring(const BlockSearch& search, Workspace& workspace) : s(search), w(workspace) {
    reserve(w.exact, s.n_keep);
    reserve(w.decoded, n_at_once * s.n_features);
  }

  //   IN  vector  (n_features), the query
  //   OUT ids, scores  (k)
  void finish(const Query& query, const float* vector, std::int64_t* ids, float* scores) {
    score(&w.kept[query.index * s.n_keep], query.n_kept, vector);
    std::sort(w.exact.begin(), w.exact.begin() + query.n_kept, std::greater<>());
    for (std::size_t i = 0; i < s.k; ++i) {
      const bool exists = i < query.n_kept;
      ids[i] = exists ? std::int64_t{position_of_key(w.exact[i])} : -1;
      scores[i] = exists ? score_of_key(w.exact[i]) : lowest;
    }
  }

  //   IN  vector  (n_features), the query
  //   OUT found   the keys of all candidates that reach the bound
  void finish_all(const Query& query, const float* vector, float bound, std::vector<std::uint64_t>& found) {
    const std::vector<Candidate>& candidates = w.reaching[query.index];
    score(candidates.data(), candidates.size(), vector);
    const auto end = w.exact.begin() + static_cast<std::ptrdiff_t>(candidates.size());
    const auto last =
        std::remove_if(w.exact.begin(), end, [=](std::uint64_t key) { return score_of_key(key) < bound; });
    std::sort(w.exact.begin(), last, std::greater<>());
    found.assign(w.exact.begin(), last);
  }

  // Prefetches the vectors that a query needs, which are far apart in memory.
  void prefetch(const Query& query) const {
    const bool has_all = s.bounds != nullptr;
    const std::vector<Candidate>& kept = has_all ? w.reaching[query.index] : w.kept;
    prefetch(kept.data() + (has_all ? 0 : query.index * s.n_keep),
             has_all ? std::min(kept.size(), most_prefetched) : query.n_kept);
  }

 private:
  static constexpr std::size_t n_at_once = 4;  // vectors that are compared together, so that their cache misses overlap
  static constexpr std::size_t most_prefetched = 256;  // vectors: more would not stay in the cache

  void prefetch(const Candidate* candidates, std::size_t n) const {
    if (s.stored == Stored::residuals) return;
    const std::size_t bytes = s.n_features * (s.stored == Stored::float32 ? 4 : 2);
    for (std::size_t i = 0; i < n; ++i) {
      const char* vector = static_cast<const char*>(s.vectors) + position_of_key(candidates[i].key) * bytes;
      prefetch_bytes(vector, std::min<std::size_t>(bytes, 1024));
    }
  }

  // Writes the keys of n candidates with their exact scores to w.exact.
  void score(const Candidate* candidates, std::size_t n, const float* vector) {
    reserve(w.exact, n);
    for (std::size_t i = 0; i < n; i += n_at_once) {
      const std::size_t n_now = std::min(n_at_once, n - i);
      const float* stored[n_at_once];
      for (std::size_t j = 0; j < n_at_once; ++j)
        stored[j] = j < n_now ? stored_vector(candidates[i + j], j) : stored[0];
      float sums[1][n_at_once];
      if (s.is_distance)
        Isa::distances(stored, vector, s.n_features, sums[0]);
      else
        Isa::template products<n_at_once, 1>(stored, {vector}, s.n_features, sums);
      for (std::size_t j = 0; j < n_now; ++j)
        w.exact[i + j] = score_key(s.is_distance ? -sums[0][j] : sums[0][j], position_of_key(candidates[i + j].key));
    }
  }

  // A pointer to the stored vector, or to its decoded copy at position `at`.
  const float* stored_vector(const Candidate& document, std::size_t at) {
    const std::size_t slot = position_of_key(document.key);
    float* decoded = &w.decoded[at * s.n_features];
    switch (s.stored) {
      case Stored::float32: return static_cast<const float*>(s.vectors) + slot * s.n_features;
      case Stored::float16:
        Isa::widen(static_cast<const std::uint16_t*>(s.vectors) + slot * s.n_features, s.n_features, decoded);
        return decoded;
      case Stored::residuals: break;
    }
    const BlockShape& shape = s.lists->shape;
    const Block& block = s.lists->blocks[document.block];
    const std::size_t list =
        std::upper_bound(s.lists->first.begin(), s.lists->first.end(), document.block) - s.lists->first.begin() - 1;
    const std::uint8_t *high = block.high(shape) + document.doc * shape.high_stride(),
                       *low = block.low(shape) + document.doc * shape.half_bytes();
    const float scale = block.fits(shape)[document.doc].scale;
    for (std::size_t j = 0; j < s.n_features; ++j) {
      const std::size_t byte = shape.byte_of(j), shift = shape.is_upper(j) ? 4 : 0;
      const int number = 16 * (high[byte] >> shift & 15) + (low[byte] >> shift & 15) - 128;
      decoded[j] = s.centroids[list * s.n_features + j] + scale * static_cast<float>(number);
    }
    return decoded;
  }

  const BlockSearch& s;
  Workspace& w;
};

}  // namespace
}  // namespace posh
