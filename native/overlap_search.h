// Exact search over segments with the tile scan of some instruction set.
#pragma once

#include "kernels.h"
#include "overlap_scan.h"

namespace posh {

bool search_tiles(const Search& search, ScanFn scan, std::int64_t* ids, std::int32_t* scores);

}  // namespace posh
