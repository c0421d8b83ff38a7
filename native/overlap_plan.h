// The segments of a search by ascending slot, with bitmaps of the documents that may be found. All threads share them.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels.h"

namespace posh {

struct Range {
  std::size_t begin, end;
  std::size_t size() const { return end - begin; }
};

// One bit per document, in whole blocks of 256: 1 if the document exists, is live and passes the filter.
// Returns an empty vector if every bit would be 1.
inline std::vector<std::uint64_t> make_allowed_words(const Segment& segment) {
  if (!segment.live && !segment.filter && segment.n_docs % 256 == 0) return {};
  constexpr std::uint64_t all = ~std::uint64_t{0};
  std::vector<std::uint64_t> words((segment.n_docs + 255) / 256 * 4);
  const std::size_t n = (segment.n_docs + 63) / 64;
  for (std::size_t i = 0; i < n; ++i)
    words[i] = (segment.live ? segment.live[i] : all) & (segment.filter ? segment.filter[i] : all);
  if (segment.n_docs % 64) words[n - 1] &= ~(all << (segment.n_docs % 64));
  return words;
}

// A place is the number of a segment in the order of slots.
class Plan {
 public:
  explicit Plan(const Search& search) : search_(search), order_(search.n_segments), allowed_(search.n_segments) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
      return search.segments[a].first_slot < search.segments[b].first_slot;
    });
    for (std::size_t i = 0; i < search.n_segments; ++i) allowed_[i] = make_allowed_words(search.segments[i]);
  }

  const Segment& segment(std::size_t place) const { return search_.segments[order_[place]]; }

  const std::vector<std::uint64_t>& allowed(std::size_t place) const { return allowed_[order_[place]]; }

  std::size_t n_docs(Range places) const {
    std::size_t n = 0;
    for (std::size_t place = places.begin; place < places.end; ++place) n += segment(place).n_docs;
    return n;
  }

 private:
  const Search& search_;
  std::vector<std::size_t> order_;
  std::vector<std::vector<std::uint64_t>> allowed_;
};

}  // namespace posh
