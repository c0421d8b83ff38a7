// Overlap search without intrinsics: one vector holds a bit of each of 128 documents. The compiler maps it to
// SSE2, NEON or two 64-bit words.
#include <cstring>

#include "overlap_scan.h"

namespace posh {
namespace {

struct DocsPortable {
  static constexpr std::size_t n_words = 2;
  using Vector = std::uint64_t __attribute__((vector_size(16)));
  Vector bits;

  static DocsPortable none() { return {Vector{0, 0}}; }
  static DocsPortable all() { return {~Vector{0, 0}}; }
  static DocsPortable load(const std::uint64_t* words) {
    DocsPortable docs;
    std::memcpy(&docs.bits, words, sizeof docs.bits);
    return docs;
  }
  void store(std::uint64_t* words) const { std::memcpy(words, &bits, sizeof bits); }
  bool any() const { return (bits[0] | bits[1]) != 0; }
  std::size_t count() const { return __builtin_popcountll(bits[0]) + __builtin_popcountll(bits[1]); }
  DocsPortable operator&(DocsPortable other) const { return {bits & other.bits}; }
  DocsPortable operator|(DocsPortable other) const { return {bits | other.bits}; }
  DocsPortable operator^(DocsPortable other) const { return {bits ^ other.bits}; }
};

}  // namespace

bool overlap_topk_portable(const Search& search, std::int64_t* ids, std::int32_t* scores) {
  return search_tiles(search, OverlapScan<DocsPortable>::scan, ids, scores);
}

bool overlap_lists_portable(const ListSearch& search, std::int64_t* ids, std::int32_t* scores) {
  return search_lists(search, OverlapScan<DocsPortable>::steps, ids, scores);
}

}  // namespace posh
