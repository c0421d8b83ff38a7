// Overlap search with the adders of AVX-512: two operations where AVX2 needs five. Vectors are those of AVX2, because
// tiles have multiples of 256 documents.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "overlap_search.h"

#include "avx512_begin.h"
#include "overlap_scan.h"
#include "overlap_avx2.h"

namespace posh {
namespace {

POSH_INLINE DocsAvx2 full_adder(DocsAvx2& sum, DocsAvx2 a, DocsAvx2 b) {
  constexpr int sum_of_three = 0x96, carry_of_three = 0xE8;  // truth tables
  const DocsAvx2 carry{_mm256_ternarylogic_epi64(sum.bits, a.bits, b.bits, carry_of_three)};
  sum.bits = _mm256_ternarylogic_epi64(sum.bits, a.bits, b.bits, sum_of_three);
  return carry;
}

}  // namespace

bool overlap_topk_avx512(const Search& search, std::int64_t* ids, std::int32_t* scores) {
  return search_tiles(search, OverlapScan<DocsAvx2>::scan, ids, scores);
}

bool overlap_lists_avx512(const ListSearch& search, std::int64_t* ids, std::int32_t* scores) {
  return search_lists(search, OverlapScan<DocsAvx2>::steps, ids, scores);
}

}  // namespace posh
#include "avx512_end.h"
#endif
