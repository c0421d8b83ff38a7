// The table of implementations in this build, and a test for each whether this CPU can run it.
#include "kernels.h"

namespace posh {
namespace {

bool always() { return true; }

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}
#endif

constexpr Kernels table[] = {
    {"scalar", always, winners_scalar, overlap_topk_scalar, overlap_lists_scalar, table_topk_scalar,
     hamming_topk_scalar, search_blocks_scalar, search_radius_scalar, sample_counts_scalar, routing_scores_scalar,
     encode_docs_scalar, nearest_lists_scalar, project_rows_scalar, search_graph_scalar, build_graph_scalar,
     prepare_documents_scalar, prepare_queries_scalar},
    {"portable", always, winners_portable, overlap_topk_portable, overlap_lists_portable, table_topk_portable,
     hamming_topk_portable, search_blocks_portable, search_radius_portable, sample_counts_scalar, routing_scores_scalar,
     encode_docs_scalar, nearest_lists_scalar, project_rows_scalar, search_graph_scalar, build_graph_scalar,
     prepare_documents_scalar, prepare_queries_scalar},
#if defined(__x86_64__)
    {"avx2", has_avx2, winners_avx2, overlap_topk_avx2, overlap_lists_avx2, table_topk_portable, hamming_topk_avx2,
     search_blocks_avx2, search_radius_avx2, sample_counts_avx2, routing_scores_avx2, encode_docs_avx2,
     nearest_lists_avx2, project_rows_avx2, search_graph_avx2, build_graph_avx2, prepare_documents_avx2,
     prepare_queries_avx2},
    {"avx512", has_avx512, winners_avx2, overlap_topk_avx512, overlap_lists_avx512, table_topk_portable,
     hamming_topk_avx2, search_blocks_avx512, search_radius_avx512, sample_counts_avx2, routing_scores_avx2,
     encode_docs_avx2, nearest_lists_avx2, project_rows_avx2, search_graph_avx512, build_graph_avx512,
     prepare_documents_avx2, prepare_queries_avx2},
#endif
};

}  // namespace

const Kernels* const kernels = table;
const std::size_t n_kernels = sizeof(table) / sizeof(table[0]);

}  // namespace posh
