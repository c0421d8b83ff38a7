// Overlap search with AVX2: one vector holds a bit of each of 256 documents.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "overlap_search.h"

#include "avx2_begin.h"
#include "overlap_scan.h"
#include "overlap_avx2.h"

namespace posh {

bool overlap_topk_avx2(const Search& search, std::int64_t* ids, std::int32_t* scores) {
  return search_tiles(search, OverlapScan<DocsAvx2>::scan, ids, scores);
}

bool overlap_lists_avx2(const ListSearch& search, std::int64_t* ids, std::int32_t* scores) {
  return search_lists(search, OverlapScan<DocsAvx2>::steps, ids, scores);
}

}  // namespace posh
#include "avx2_end.h"
#endif
