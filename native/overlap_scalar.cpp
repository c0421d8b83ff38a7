// Overlap search, straight from its definition: the specification that the tests compare other kernels with.
#include <algorithm>
#include <utility>
#include <vector>

#include "kernels.h"

namespace posh {
namespace {

bool bit_of(const std::uint64_t* words, std::size_t i) { return words[i / 64] >> (i % 64) & 1; }

std::int32_t overlap(const Segment& segment, std::size_t doc, const std::uint16_t* query, std::size_t n_active) {
  std::int32_t common = 0;
  for (std::size_t j = 0; j < n_active; ++j) common += bit_of(segment.planes + query[j] * segment.stride, doc);
  return common;
}

using Ranked = std::pair<std::int32_t, std::int64_t>;  // (-score, slot): ascending is best first

// Appends (-score, slot) for each document of the segment that may be found; slot_of(doc) gives its slot.
template <class SlotOf>
void rank(const Search& search, const Segment& segment, std::size_t q, SlotOf slot_of, std::vector<Ranked>& ranked) {
  for (std::size_t doc = 0; doc < segment.n_docs; ++doc) {
    if (segment.live && !bit_of(segment.live, doc)) continue;
    if (segment.filter && !bit_of(segment.filter, doc)) continue;
    ranked.emplace_back(-overlap(segment, doc, search.queries + q * search.n_active, search.n_active), slot_of(doc));
  }
}

void write_best(std::vector<Ranked>& ranked, std::size_t k, std::int64_t* ids, std::int32_t* scores) {
  const std::size_t n = std::min(k, ranked.size());
  std::partial_sort(ranked.begin(), ranked.begin() + n, ranked.end());
  for (std::size_t i = 0; i < k; ++i) {
    ids[i] = i < n ? ranked[i].second : -1;
    scores[i] = i < n ? -ranked[i].first : -1;
  }
}

}  // namespace

bool overlap_topk_scalar(const Search& search, std::int64_t* ids, std::int32_t* scores) {
  Cancellation cancellation(search.poll);
  run_tasks(search.n_queries, search.n_threads, cancellation, [&](std::size_t q) {
    std::vector<Ranked> ranked;
    for (std::size_t s = 0; s < search.n_segments && !cancellation.requested(); ++s) {
      const Segment& segment = search.segments[s];
      rank(
          search, segment, q, [&](std::size_t doc) { return segment.first_slot + static_cast<std::int64_t>(doc); },
          ranked);
    }
    write_best(ranked, search.k, ids + q * search.k, scores + q * search.k);
  });
  return !cancellation.requested();
}

bool overlap_lists_scalar(const ListSearch& search, std::int64_t* ids, std::int32_t* scores) {
  Cancellation cancellation(search.poll);
  run_tasks(search.n_queries, search.n_threads, cancellation, [&](std::size_t q) {
    std::vector<Ranked> ranked;
    for (std::int64_t i = search.offsets[q]; i < search.offsets[q + 1] && !cancellation.requested(); ++i) {
      const std::int64_t* slots = search.slots[search.visits[i]];
      rank(search, search.segments[search.visits[i]], q, [&](std::size_t doc) { return slots[doc]; }, ranked);
    }
    write_best(ranked, search.k, ids + q * search.k, scores + q * search.k);
  });
  return !cancellation.requested();
}

}  // namespace posh
