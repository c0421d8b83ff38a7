// Python bindings of the search in a graph. See graph.h.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "bindings.h"
#include "bindings_blocks.h"
#include "bindings_prepared.h"
#include "graph.h"
#include "metric.h"

namespace {

struct GraphSettings {
  float stop;
  std::size_t n_keep;
};

// A graph, its documents and its transformation. Keeps its arrays alive.
class Graph {
 public:
  Graph(posh::GraphShape shape, Matrix<const std::uint8_t> records, Vector<const std::uint32_t> slots,
        Vector<const std::uint32_t> entries, Rows rows, Floats mean, Floats bias, float radius, std::size_t n_slots,
        bool is_distance)
      : records_(records), slots_(slots), entries_(entries), mean_(mean), bias_(bias), n_slots_(n_slots),
        is_distance_(is_distance) {
    const std::size_t n = records.shape(0), d = rows.shape(1);
    require(shape.is_valid() && n >= 1 && n < (std::size_t{1} << 31) && records.shape(1) == shape.stride() &&
                slots.shape(0) == n,
            "graph: records");
    require(rows.shape(0) == shape.n_columns && d >= 1 && d <= max_columns && mean.shape(0) == d &&
                bias.shape(0) == shape.n_columns,
            "graph: transformation");
    require(entries.shape(0) >= 1 && entries.shape(0) <= 65536 &&
                std::all_of(entries.data(), entries.data() + entries.shape(0), [=](std::uint32_t e) { return e < n; }),
            "graph: entries");
    const std::vector<float> no_bias(shape.n_columns);
    rows_ = std::make_unique<posh::Router>(rows.data(), no_bias.data(), shape.n_columns, d);
    graph_ = {shape,
              n,
              d,
              records.data(),
              slots.data(),
              {rows_.get(), mean.data(), bias.data(), radius},
              nullptr,
              entries.data(),
              entries.shape(0)};
    route_to_entries();
    graph_.entry_router = router_.get();
  }

  // Returns a search with these parameters. `live` (n_slots) are the documents that may be found, unless a call says
  // otherwise. The caller keeps the arguments and this object alive.
  PreparedSearch prepare(const GraphSettings& settings, const posh::Metric& metric, const Vectors& vectors,
                         std::optional<Vector<const std::uint8_t>> live, std::optional<Vector<const std::int64_t>> ids,
                         std::size_t k, std::size_t n_threads, const std::string& kernel) const {
    require(metric.mean.size() == graph_.n_features, "prepare: metric");
    const posh::GraphSearch fixed = make_search(settings, nullptr, 0, vectors, live, k, n_threads);
    const posh::Kernels& functions = find_kernel(kernel);
    return {metric,
            functions,
            k,
            vectors.n_slots,
            std::move(ids),
            [fixed, live, function = functions.search_graph](
                const float* queries, std::size_t n, const std::uint8_t* allowed, std::int64_t* slots, float* scores) {
              posh::GraphSearch search = fixed;
              search.queries = queries;
              search.n_queries = n;
              if (allowed) search.live = allowed;
              return function(search, slots, scores);
            }};
  }

  // Searches for queries that are prepared already, and counts visited nodes.
  void search(const GraphSettings& settings, Rows queries, const Vectors& vectors,
              std::optional<Vector<const std::uint8_t>> live, Vector<const std::int64_t> skipped,
              Matrix<std::int64_t> ids, Matrix<float> scores, Vector<std::uint32_t> n_visited, std::size_t n_threads,
              const std::string& kernel) const {
    const std::size_t n = queries.shape(0);
    require(
        queries.shape(1) == graph_.n_features && ids.shape(0) == n && skipped.shape(0) == n && n_visited.shape(0) == n,
        "search: shapes");
    require(scores.shape(0) == n && scores.shape(1) == ids.shape(1), "search: results");
    posh::GraphSearch search = make_search(settings, queries.data(), n, vectors, live, ids.shape(1), n_threads);
    search.skipped = skipped.data();
    search.n_visited = n_visited.data();
    run([&, function = find_kernel(kernel).search_graph] { return function(search, ids.data(), scores.data()); });
  }

 private:
  // The routing score of an entry point x is query · x - |x|² / 2.
  void route_to_entries() {
    const posh::GraphShape& shape = graph_.shape;
    std::vector<float> vectors(graph_.n_entries * shape.n_columns), biases(graph_.n_entries);
    for (std::size_t i = 0; i < graph_.n_entries; ++i) {
      const std::uint8_t* record = graph_.records + graph_.entries[i] * shape.stride();
      posh::GraphHead head;
      std::memcpy(&head, record + shape.head(), sizeof head);
      for (std::size_t j = 0; j < shape.n_columns; ++j)
        vectors[i * shape.n_columns + j] = head.scale * static_cast<float>(static_cast<std::int8_t>(record[j]));
      biases[i] = -0.5f * head.norm;
    }
    router_ = std::make_unique<posh::Router>(vectors.data(), biases.data(), graph_.n_entries, shape.n_columns);
  }

  posh::GraphSearch make_search(const GraphSettings& settings, const float* queries, std::size_t n_queries,
                                const Vectors& vectors, const std::optional<Vector<const std::uint8_t>>& live,
                                std::size_t k, std::size_t n_threads) const {
    require(k >= 1 && k <= settings.n_keep && n_threads >= 1, "search: results");
    require(vectors.kind != posh::Stored::residuals && vectors.n_features == graph_.n_features &&
                n_slots_ <= vectors.n_slots && (!live || live->shape(0) >= vectors.n_slots),
            "search: vectors");
    return {&graph_,
            queries,
            n_queries,
            k,
            settings.stop,
            settings.n_keep,
            vectors.kind,
            vectors.data,
            vectors.n_slots,
            is_distance_,
            live ? live->data() : nullptr,
            n_slots_,
            nullptr,
            nullptr,
            n_threads,
            check_signals};
  }

  Matrix<const std::uint8_t> records_;
  Vector<const std::uint32_t> slots_, entries_;
  Floats mean_, bias_;
  std::size_t n_slots_;  // later documents are not in the graph
  bool is_distance_;
  std::unique_ptr<posh::Router> rows_, router_;
  posh::Graph graph_{};
};

// The first records, without rows of vectors, are those of old nodes.
void build_graph(posh::GraphShape shape, Rows vectors, Floats lost, Matrix<const std::int32_t> candidates,
                 Vector<const std::uint32_t> entries, float alpha, Matrix<std::uint8_t> records, std::size_t n_threads,
                 const std::string& kernel) {
  const std::size_t n = records.shape(0), n_new = vectors.shape(0);
  require(shape.is_valid() && vectors.shape(1) == shape.n_columns && lost.shape(0) == n_new &&
              candidates.shape(0) == n_new && n_new <= n && n < (std::size_t{1} << 31) &&
              records.shape(1) == shape.stride() && n_threads >= 1,
          "build_graph: shapes");
  require(entries.shape(0) >= 1 &&
              std::all_of(entries.data(), entries.data() + entries.shape(0), [=](std::uint32_t e) { return e < n; }),
          "build_graph: entries");
  const posh::GraphPlan plan{
      shape,          vectors.data(),   lost.data(), n,         n - n_new,    candidates.data(), candidates.shape(1),
      entries.data(), entries.shape(0), alpha,       n_threads, check_signals};
  run([&, function = find_kernel(kernel).build_graph] { return function(plan, records.data()); });
}

}  // namespace

void bind_graph(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<posh::GraphShape>(m, "GraphShape")
      .def(nb::init<std::size_t, std::size_t, std::size_t>(), "n_columns"_a, "n_bits"_a, "degree"_a)
      .def_prop_ro("is_valid", &posh::GraphShape::is_valid)
      .def_prop_ro("nodes", &posh::GraphShape::nodes)
      .def_prop_ro("head", &posh::GraphShape::head)
      .def_prop_ro("stride", &posh::GraphShape::stride);
  nb::class_<GraphSettings>(m, "GraphSettings")
      .def(
          "__init__",
          [](GraphSettings* self, float stop, std::size_t n_keep) { new (self) GraphSettings{stop, n_keep}; }, "stop"_a,
          "n_keep"_a);
  nb::class_<Graph>(m, "Graph")
      .def(nb::init<posh::GraphShape, Matrix<const std::uint8_t>, Vector<const std::uint32_t>,
                    Vector<const std::uint32_t>, Rows, Floats, Floats, float, std::size_t, bool>(),
           "shape"_a, "records"_a, "slots"_a, "entries"_a, "rows"_a, "mean"_a, "bias"_a, "radius"_a, "n_slots"_a,
           "is_distance"_a)
      .def("prepare", &Graph::prepare, "settings"_a, "metric"_a, "vectors"_a, "live"_a.noconvert().none(),
           "ids"_a.noconvert().none(), "k"_a, "n_threads"_a, "kernel"_a, nb::keep_alive<0, 1>(), nb::keep_alive<0, 2>(),
           nb::keep_alive<0, 3>(), nb::keep_alive<0, 4>())
      .def("search", &Graph::search, "settings"_a, "queries"_a, "vectors"_a, "live"_a.none(), "skipped"_a, "ids"_a,
           "scores"_a, "n_visited"_a, "n_threads"_a, "kernel"_a);
  m.def("build_graph", &build_graph, "shape"_a, "vectors"_a, "lost"_a, "candidates"_a, "entries"_a, "alpha"_a,
        "records"_a, "n_threads"_a, "kernel"_a);
}
