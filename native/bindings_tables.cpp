// Python bindings of table scores and Hamming search. They also reject bit numbers and slots that are out of range.
#include <algorithm>
#include <stdexcept>

#include "bindings.h"

namespace {

posh::TableSearch make_table_search(Matrix<const std::uint16_t> codes, Matrix<const float> tables,
                                    const std::optional<Floats>& penalty, std::size_t k, std::size_t n_threads) {
  const std::size_t n_docs = codes.shape(0), n_bits = tables.shape(1);
  require(n_docs <= UINT32_MAX && k >= 1 && n_threads >= 1 && (!penalty || penalty->shape(0) >= n_docs),
          "tables: shapes");
  return {
      codes.data(), n_docs, codes.shape(1), tables.data(), tables.shape(0), n_bits, penalty ? penalty->data() : nullptr,
      nullptr,      k,      n_threads,      check_signals};
}

void table_topk(Matrix<const std::uint16_t> codes, Matrix<const float> tables, std::optional<Floats> penalty,
                std::optional<Words> passing, Matrix<std::int64_t> ids, Matrix<float> scores, std::size_t n_threads,
                const std::string& kernel) {
  posh::TableSearch search = make_table_search(codes, tables, penalty, ids.shape(1), n_threads);
  search.passing = bitmap(passing, search.n_docs);
  require(
      std::all_of(codes.data(), codes.data() + codes.size(), [&](std::uint16_t bit) { return bit < search.n_bits; }),
      "tables: bits");
  require(ids.shape(0) == search.n_queries && scores.shape(0) == ids.shape(0) && scores.shape(1) == ids.shape(1),
          "tables: shapes");
  const posh::Kernels& k = find_kernel(kernel);
  run([&] { return k.table_topk(search, ids.data(), scores.data()); });
}

void table_scores(Matrix<const std::uint16_t> codes, Matrix<const float> tables, std::optional<Floats> penalty,
                  Matrix<const std::int64_t> slots, Matrix<float> scores, std::size_t n_threads) {
  const posh::TableSearch search =
      make_table_search(codes, tables, penalty, std::max<std::size_t>(1, slots.shape(1)), n_threads);
  require(slots.shape(0) == search.n_queries && scores.shape(0) == slots.shape(0) && scores.shape(1) == slots.shape(1),
          "tables: shapes");
  const auto exists = [&](std::int64_t slot) { return slot < static_cast<std::int64_t>(search.n_docs); };
  require(std::all_of(slots.data(), slots.data() + slots.size(), exists), "tables: slots");
  if (slots.size()) run([&] { return posh::table_scores(search, slots.data(), scores.data()); });
}

void best_candidates(Matrix<const std::int64_t> slots, Matrix<const float> candidate_scores, Matrix<std::int64_t> ids,
                     Matrix<float> scores, std::size_t n_threads) {
  const std::size_t m = slots.shape(0), n = slots.shape(1), k = ids.shape(1);
  require(candidate_scores.shape(0) == m && candidate_scores.shape(1) == n && ids.shape(0) == m &&
              scores.shape(0) == m && scores.shape(1) == k && k >= 1 && n_threads >= 1,
          "candidates: shapes");
  const auto small = [](std::int64_t slot) { return slot <= UINT32_MAX; };
  require(std::all_of(slots.data(), slots.data() + slots.size(), small), "candidates: slots");
  const posh::Candidates candidates{slots.data(), candidate_scores.data(), m, n, k, n_threads, check_signals};
  run([&] { return posh::best_candidates(candidates, ids.data(), scores.data()); });
}

void hamming_topk(Matrix<const std::uint8_t> codes, Matrix<const std::uint8_t> queries, std::size_t n_bits,
                  std::optional<Words> passing, Matrix<std::int64_t> ids, Matrix<std::int32_t> scores,
                  std::size_t n_threads, const std::string& kernel) {
  const std::size_t n_docs = codes.shape(0), n_bytes = codes.shape(1), m = queries.shape(0), k = ids.shape(1);
  require(queries.shape(1) == n_bytes && n_bytes == (n_bits + 7) / 8 && n_bits >= 1 && ids.shape(0) == m &&
              scores.shape(0) == m && scores.shape(1) == k && k >= 1 && n_threads >= 1,
          "hamming: shapes");
  const posh::HammingSearch search{
      codes.data(), n_docs, n_bytes, n_bits, queries.data(), m, bitmap(passing, n_docs), k, n_threads, check_signals};
  const posh::Kernels& implementation = find_kernel(kernel);
  run([&] { return implementation.hamming_topk(search, ids.data(), scores.data()); });
}

}  // namespace

void bind_tables(nb::module_& m) {
  const auto in = [](const char* name) { return nb::arg(name).noconvert(); };
  const auto maybe = [](const char* name) { return nb::arg(name).noconvert().none(); };
  m.def("table_topk", table_topk, in("codes"), in("tables"), maybe("penalty"), maybe("passing"), in("ids"),
        in("scores"), nb::arg("n_threads"), nb::arg("kernel"));
  m.def("table_scores", table_scores, in("codes"), in("tables"), maybe("penalty"), in("slots"), in("scores"),
        nb::arg("n_threads"));
  m.def("best_candidates", best_candidates, in("slots"), in("candidate_scores"), in("ids"), in("scores"),
        nb::arg("n_threads"));
  m.def("hamming_topk", hamming_topk, in("codes"), in("queries"), nb::arg("n_bits"), maybe("passing"), in("ids"),
        in("scores"), nb::arg("n_threads"), nb::arg("kernel"));
}
