// The search in a graph with AVX2.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>
#include <vector>

#include "blocks.h"
#include "graph.h"
#include "kernels.h"
#include "keys.h"

#include "avx2_begin.h"
#include "graph_avx2.h"
#include "graph_build.h"
#include "graph_search.h"

namespace posh {

bool search_graph_avx2(const GraphSearch& search, std::int64_t* ids, float* scores) {
  return search_graph<GraphAvx2>(search, ids, scores);
}
bool build_graph_avx2(const GraphPlan& plan, std::uint8_t* records) { return build_graph<GraphAvx2>(plan, records); }

}  // namespace posh
#include "avx2_end.h"
#endif
