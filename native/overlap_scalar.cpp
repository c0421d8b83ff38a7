// Exact search as its definition says: the specification that the other kernels are tested against.
#include <algorithm>
#include <set>
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

std::set<std::size_t> visited(const Search& search, std::size_t q) {
  std::set<std::size_t> segments;
  if (search.offsets)
    segments.insert(search.visits + search.offsets[q], search.visits + search.offsets[q + 1]);
  else
    for (std::size_t s = 0; s < search.n_segments; ++s) segments.insert(s);
  return segments;
}

}  // namespace

bool overlap_topk_scalar(const Search& search, std::int64_t* ids, std::int32_t* scores) {
  Cancellation cancellation(search.poll);
  run_tasks(search.n_queries, search.n_threads, cancellation, [&](std::size_t q) {
    std::vector<std::pair<std::int32_t, std::int64_t>> found;  // (-score, slot): ascending is best first
    for (const std::size_t s : visited(search, q)) {
      const Segment& segment = search.segments[s];
      for (std::size_t doc = 0; doc < segment.n_docs; ++doc) {
        if (segment.live && !bit_of(segment.live, doc)) continue;
        if (segment.filter && !bit_of(segment.filter, doc)) continue;
        found.emplace_back(-overlap(segment, doc, search.queries + q * search.n_active, search.n_active),
                           segment.first_slot + static_cast<std::int64_t>(doc));
      }
      if (cancellation.requested()) return;
    }
    const std::size_t n = std::min(search.k, found.size());
    std::partial_sort(found.begin(), found.begin() + n, found.end());
    for (std::size_t i = 0; i < search.k; ++i) {
      ids[q * search.k + i] = i < n ? found[i].second : -1;
      scores[q * search.k + i] = i < n ? -found[i].first : -1;
    }
  });
  return !cancellation.requested();
}

}  // namespace posh
