// Exact search with the scan of some instruction set: over all segments, and over the lists of each query.
#pragma once

#include "kernels.h"
#include "overlap_scan.h"

namespace posh {

bool search_tiles(const Search& search, ScanFn scan, std::int64_t* ids, std::int32_t* scores);
bool search_lists(const ListSearch& search, const ScanSteps& steps, std::int64_t* ids, std::int32_t* scores);

}  // namespace posh
