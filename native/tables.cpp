// Scores by a table: the sum of the query's table over the set bits of a document, minus the document's penalty.
// Two scorings use it:
// - asymmetric scoring: the table is the query's projection, and there is no penalty;
// - the decoder's distances: the table is the decoder times the query, and the penalty of a document is the squared
//   length of its decoded vector.
#include <algorithm>
#include <limits>
#include <vector>

#include "kernels.h"
#include "keys.h"
#include "prefetch.h"

namespace posh {
namespace {

float score_of(const TableSearch& s, const float* table, std::size_t slot) {
  const std::uint16_t* code = s.codes + slot * s.n_active;
  float sum = s.penalty ? -s.penalty[slot] : 0.0f;
  for (std::size_t j = 0; j < s.n_active; ++j) sum += table[code[j]];
  return sum;
}

// Whether all bits of a code are in the table. Codes may come from a mapped file that was not validated, and a wrong
// bit number would read outside the table.
bool in_table(const TableSearch& s, std::size_t slot) {
  const std::uint16_t* code = s.codes + slot * s.n_active;
  std::uint16_t highest = 0;
  for (std::size_t j = 0; j < s.n_active; ++j) highest = std::max(highest, code[j]);
  return highest < s.n_bits;
}

// Computes the scores of n documents from `first` on, one after the other: the specification.
struct OneByOne {
  static void scores(const TableSearch& s, const float* table, std::size_t first, std::size_t n, float* out) {
    for (std::size_t i = 0; i < n; ++i) out[i] = score_of(s, table, first + i);
  }
};

// Computes four sums at a time. Each addition of one sum waits for the one before; four sums keep the adder busy.
struct FourAtATime {
  static void scores(const TableSearch& s, const float* table, std::size_t first, std::size_t n, float* out) {
    std::size_t i = 0;
    for (; i + 4 <= n; i += 4) {
      const std::uint16_t* code = s.codes + (first + i) * s.n_active;
      float sum[4] = {};
      for (std::size_t lane = 0; s.penalty && lane < 4; ++lane) sum[lane] = -s.penalty[first + i + lane];
      for (std::size_t j = 0; j < s.n_active; ++j)
        for (std::size_t lane = 0; lane < 4; ++lane) sum[lane] += table[code[lane * s.n_active + j]];
      std::copy_n(sum, 4, out + i);
    }
    OneByOne::scores(s, table, first + i, n - i, out + i);
  }
};

void prefetch(const TableSearch& s, std::int64_t slot) {
  const std::uint16_t* code = s.codes + slot * s.n_active;
  prefetch_bytes(code, s.n_active * sizeof *code);
  prefetch_line(code + s.n_active - 1);
  if (s.penalty) prefetch_line(s.penalty + slot);
}

// Scores eight candidates at a time, and prefetches the codes of later candidates, which lie anywhere in memory.
void score_candidates(const TableSearch& s, const float* table, const std::int64_t* slots, float* scores) {
  constexpr std::size_t lanes = 8, ahead = 32;
  const std::vector<std::uint16_t> blank(s.n_active);
  for (std::size_t first = 0; first < s.k; first += lanes) {
    const std::uint16_t* code[lanes];
    float sum[lanes];
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const std::size_t i = first + lane;
      if (i + ahead < s.k && slots[i + ahead] >= 0) prefetch(s, slots[i + ahead]);
      const bool exists = i < s.k && slots[i] >= 0 && in_table(s, static_cast<std::size_t>(slots[i]));
      code[lane] = exists ? s.codes + slots[i] * s.n_active : blank.data();
      sum[lane] = exists ? (s.penalty ? -s.penalty[slots[i]] : 0.0f) : -std::numeric_limits<float>::infinity();
    }
    for (std::size_t j = 0; j < s.n_active; ++j)
      for (std::size_t lane = 0; lane < lanes; ++lane) sum[lane] += table[code[lane][j]];
    std::copy_n(sum, std::min(lanes, s.k - first), scores + first);
  }
}

// Sorts keys in ascending order. Few scores are equal: we sort by the upper half of a key, which is its score, and
// then sort each run of equal scores by the whole key.
void sort_by_score(std::vector<std::uint64_t>& keys, std::vector<std::uint64_t>& scratch) {
  sort_keys(keys, scratch, 32);
  for (std::size_t first = 0, last; first < keys.size(); first = last) {
    for (last = first + 1; last < keys.size() && keys[last] >> 32 == keys[first] >> 32;) ++last;
    if (last - first > 1) std::sort(keys.begin() + first, keys.begin() + last);
  }
}

void write(const TableSearch& s, const float* table, BestKeys& best, std::int64_t* ids, float* scores) {
  std::fill_n(ids, s.k, -1);
  std::fill_n(scores, s.k, -std::numeric_limits<float>::infinity());
  for (const std::uint64_t key : best.sorted()) {
    const std::uint32_t slot = position_of_key(key);
    *ids++ = slot;
    *scores++ = score_of(s, table, slot);
  }
}

template <class Scorer>
bool topk(const TableSearch& s, std::int64_t* ids, float* scores) {
  constexpr std::size_t tile = 2048;
  Cancellation cancellation(s.poll);
  run_tasks(s.n_queries, s.n_threads, cancellation, [&](std::size_t query) {
    const float* table = s.tables + query * s.n_bits;
    BestKeys best(s.k);
    float buffer[tile];
    for (std::size_t first = 0; first < s.n_docs && !cancellation.requested(); first += tile) {
      const std::size_t n = std::min(tile, s.n_docs - first);
      Scorer::scores(s, table, first, n, buffer);
      for (std::size_t i = 0; i < n; ++i)
        if (passes(s.passing, first + i)) best.add(score_key(buffer[i], static_cast<std::uint32_t>(first + i)));
    }
    write(s, table, best, ids + query * s.k, scores + query * s.k);
  });
  return !cancellation.requested();
}

}  // namespace

bool table_topk_scalar(const TableSearch& s, std::int64_t* ids, float* scores) {
  return topk<OneByOne>(s, ids, scores);
}

bool table_topk_portable(const TableSearch& s, std::int64_t* ids, float* scores) {
  return topk<FourAtATime>(s, ids, scores);
}

bool table_scores(const TableSearch& s, const std::int64_t* slots, float* scores) {
  Cancellation cancellation(s.poll);
  run_tasks(s.n_queries, s.n_threads, cancellation, [&](std::size_t query) {
    score_candidates(s, s.tables + query * s.n_bits, slots + query * s.k, scores + query * s.k);
  });
  return !cancellation.requested();
}

bool best_candidates(const Candidates& c, std::int64_t* ids, float* scores) {
  Cancellation cancellation(c.poll);
  run_tasks(c.n_queries, c.n_threads, cancellation, [&](std::size_t query) {
    const std::int64_t* slots = c.slots + query * c.n_candidates;
    const float* candidate_scores = c.scores + query * c.n_candidates;
    std::vector<std::uint64_t> keys, scratch;  // ascending keys: see keys.h
    keys.reserve(c.n_candidates);
    for (std::size_t i = 0; i < c.n_candidates; ++i)
      if (slots[i] >= 0) keys.push_back(~score_key(candidate_scores[i], static_cast<std::uint32_t>(slots[i])));
    if (keys.size() > 4 * c.k) {  // with fewer keys, sorting all is as fast as choosing k first
      std::nth_element(keys.begin(), keys.begin() + (c.k - 1), keys.end());
      keys.resize(c.k);
    }
    sort_by_score(keys, scratch);
    for (std::size_t i = 0; i < c.k; ++i) {
      const bool exists = i < keys.size();
      ids[query * c.k + i] = exists ? static_cast<std::int64_t>(keys[i] & 0xFFFFFFFFu) : -1;
      scores[query * c.k + i] = exists ? score_of_key(~keys[i]) : -std::numeric_limits<float>::infinity();
    }
  });
  return !cancellation.requested();
}

}  // namespace posh
