// The search in a graph for any CPU.
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

#include "block_plain.h"
#include "graph_build.h"
#include "graph_plain.h"
#include "graph_search.h"

namespace posh {

bool search_graph_scalar(const GraphSearch& search, std::int64_t* ids, float* scores) {
  return search_graph<GraphPlain<BlockPlain>>(search, ids, scores);
}
bool build_graph_scalar(const GraphPlan& plan, std::uint8_t* records) {
  return build_graph<GraphPlain<BlockPlain>>(plan, records);
}

}  // namespace posh
