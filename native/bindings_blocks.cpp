// Python bindings of the search in blocks. See blocks.h.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "bindings.h"
#include "bindings_blocks.h"
#include "bindings_prepared.h"
#include "blocks.h"
#include "keys.h"
#include "metric.h"

namespace {

template <class T>
nb::ndarray<nb::numpy, T> new_array(std::initializer_list<std::size_t> shape) {
  std::size_t size = 1;
  for (const std::size_t n : shape) size *= n;
  T* data = new T[size];
  return {data, shape, nb::capsule(data, [](void* p) noexcept { delete[] static_cast<T*>(p); })};
}

// Returns a pointer that keeps the array alive.
template <class T>
std::shared_ptr<T> share_array(Vector<T> array) {
  return {array.data(), [array](T*) {}};
}

class Blocks {
 public:
  explicit Blocks(std::shared_ptr<const Space> space) : space_(std::move(space)) {
    auto empty = std::make_shared<posh::BlockLists>();
    empty->shape = space_->shape;
    empty->first.assign(space_->centroids.shape(0) + 1, 0);
    posh::count_live(*empty);
    lists_ = empty;
  }

  Blocks with_documents(Rows vectors, Vector<const std::int32_t> lists, Vector<const std::uint32_t> slots,
                        std::size_t n_threads, const std::string& kernel) const {
    const std::size_t n = vectors.shape(0), n_lists = lists_->n_lists();
    require(vectors.shape(1) == space_->centroids.shape(1) && lists.shape(0) == n && slots.shape(0) == n &&
                n < (std::size_t{1} << 31) && n_threads >= 1,
            "documents: shapes");
    require(std::all_of(lists.data(), lists.data() + n,
                        [=](std::int32_t l) { return l >= 0 && static_cast<std::size_t>(l) < n_lists; }),
            "documents: lists");
    const posh::Residuals residuals{
        vectors.data(), lists.data(),        slots.data(),       n, vectors.shape(1), space_->centroids.data(),
        n_lists,        space_->reduction(), space_->is_distance};
    std::shared_ptr<const posh::BlockLists> result;
    run([&, encode = find_kernel(kernel).encode_docs] {
      result = posh::with_documents(*lists_, space_->projection, residuals, encode, n_threads, check_signals);
      return result != nullptr;
    });
    return Blocks(space_, result);
  }

  Blocks without(Vector<const std::uint8_t> removed) const {
    std::shared_ptr<const posh::BlockLists> result;
    run([&] {
      result = posh::without_documents(*lists_, removed.data(), removed.shape(0));
      return true;
    });
    return Blocks(space_, result);
  }

  // Returns these documents in the lists of another space: list l has the documents of list sources[l], or none if that
  // is negative. Their centroids must be the same.
  Blocks rearranged(std::shared_ptr<const Space> space, Vector<const std::int32_t> sources) const {
    const auto n_before = static_cast<std::int64_t>(lists_->n_lists());
    require(sources.shape(0) == space->centroids.shape(0) && space->shape.n_bits == lists_->shape.n_bits &&
                space->shape.n_active == lists_->shape.n_active && space->shape.n_columns == lists_->shape.n_columns,
            "rearranged: shapes");
    require(
        std::all_of(sources.data(), sources.data() + sources.shape(0), [=](std::int32_t l) { return l < n_before; }),
        "rearranged: lists");
    std::shared_ptr<const posh::BlockLists> result;
    run([&] {
      result = posh::rearranged_lists(*lists_, sources.data(), sources.shape(0));
      return true;
    });
    return Blocks(std::move(space), result);
  }

  // Returns the live documents of each list, and all that are stored, (2, n_lists).
  nb::ndarray<nb::numpy, std::int64_t> count_documents() const {
    const std::size_t n_lists = lists_->n_lists();
    const auto counts = new_array<std::int64_t>({2, n_lists});
    posh::count_documents(*lists_, counts.data(), counts.data() + n_lists);
    return counts;
  }

  nb::ndarray<nb::numpy, std::uint32_t> slots_of_lists(Vector<const std::int32_t> chosen) const {
    const auto n_lists = static_cast<std::int64_t>(lists_->n_lists());
    require(std::all_of(chosen.data(), chosen.data() + chosen.shape(0),
                        [=](std::int32_t l) { return l >= 0 && l < n_lists; }),
            "slots_of_lists: lists");
    const std::vector<std::uint32_t> slots = posh::slots_of_lists(*lists_, chosen.data(), chosen.shape(0));
    const auto result = new_array<std::uint32_t>({slots.size()});
    std::copy(slots.begin(), slots.end(), result.data());
    return result;
  }

  std::size_t nbytes() const {
    std::size_t bytes = 0;
    for (const posh::Block& block : lists_->blocks) bytes += lists_->shape.bytes(block.n_docs) + 32 * block.n_groups;
    return bytes;
  }

  // All blocks as arrays: see BlockArrays in blocks.h.
  nb::tuple to_arrays() const {
    const posh::ArraySizes sizes = posh::array_sizes(*lists_);
    const auto memory = new_array<std::uint8_t>({sizes.n_bytes});
    const auto table = new_array<std::int64_t>({sizes.n_blocks, 3});
    const auto groups = new_array<float>({sizes.n_blocks, 3 * posh::max_groups});
    const auto live = new_array<std::uint64_t>({sizes.n_words});
    run([&] {
      posh::copy_to_arrays(*lists_, memory.data(), table.data(), groups.data(), live.data());
      return true;
    });
    return nb::make_tuple(memory, table, groups, live);
  }

  std::size_t n_stored() const { return lists_->shape.n_stored; }

  static Blocks from_arrays(std::shared_ptr<const Space> space, Vector<const std::uint8_t> memory,
                            Matrix<const std::int64_t> table, Rows groups, Words live, std::size_t n_stored) {
    posh::BlockShape shape = space->shape;
    require(n_stored == shape.n_columns || n_stored == shape.width(), "arrays: columns");
    shape.n_stored = n_stored;
    const std::size_t n = table.shape(0);
    require(table.shape(1) == 3 && groups.shape(0) == n && groups.shape(1) == 3 * posh::max_groups, "arrays: shapes");
    const posh::BlockArrays arrays{
        share_array(memory), table.data(), groups.data(), share_array(live), memory.shape(0), n, live.shape(0)};
    auto lists = posh::open_arrays(shape, space->centroids.shape(0), arrays);
    require(lists != nullptr, "arrays: table");
    return Blocks(std::move(space), std::move(lists));
  }

  // Searches for queries that are prepared already: see Metric.
  void search(const Settings& settings, Rows queries, const Vectors& vectors,
              std::optional<Vector<const std::uint8_t>> allowed, Matrix<std::int64_t> ids, Matrix<float> scores,
              std::size_t n_threads, const std::string& kernel) const {
    require(queries.shape(1) == space_->centroids.shape(1) && ids.shape(0) == queries.shape(0), "search: shapes");
    require(scores.shape(0) == ids.shape(0) && scores.shape(1) == ids.shape(1), "search: results");
    require(!allowed || allowed->shape(0) >= vectors.n_slots, "search: allowed");
    posh::BlockSearch search = make_search(settings, queries.data(), queries.shape(0), n_threads);
    complete_search(search, vectors, ids.shape(1));
    search.allowed = allowed ? allowed->data() : nullptr;
    run([&, function = find_kernel(kernel).search_blocks] { return function(search, ids.data(), scores.data()); });
  }

  // Finds all documents whose scores reach the bounds, for queries that are prepared already. Returns the number of
  // documents of each query, and the slots and scores of all queries, one after the other.
  nb::tuple search_radius(const Settings& settings, Rows queries, Floats bounds, float margin, const Vectors& vectors,
                          std::optional<Vector<const std::uint8_t>> allowed, std::size_t n_threads,
                          const std::string& kernel) const {
    const std::size_t n = queries.shape(0);
    require(queries.shape(1) == space_->centroids.shape(1) && bounds.shape(0) == n && margin >= 0.0f, "radius: shapes");
    require(!allowed || allowed->shape(0) >= vectors.n_slots, "radius: allowed");
    posh::BlockSearch search = make_search(settings, queries.data(), n, n_threads);
    search.has_first = false;
    set_vectors(search, vectors);
    search.k = search.n_keep = 0;
    search.bounds = bounds.data();
    search.margin = margin;
    search.allowed = allowed ? allowed->data() : nullptr;
    std::vector<std::vector<std::uint64_t>> found(n);
    run([&, function = find_kernel(kernel).search_radius] { return function(search, found.data()); });

    std::size_t total = 0;
    const auto counts = new_array<std::int64_t>({n});
    for (std::size_t i = 0; i < n; ++i) total += found[i].size(), counts.data()[i] = std::int64_t(found[i].size());
    const auto slots = new_array<std::int64_t>({total});
    const auto scores = new_array<float>({total});
    run([&, to = slots.data(), score = scores.data()]() mutable {
      for (std::vector<std::uint64_t>& keys : found) {
        for (const std::uint64_t key : keys) *to++ = posh::position_of_key(key), *score++ = posh::score_of_key(key);
        keys = {};
      }
      return true;
    });
    return nb::make_tuple(counts, slots, scores);
  }

  // Returns a search with these parameters. The caller keeps the arguments and this object alive.
  PreparedSearch prepare(const Settings& settings, const posh::Metric& metric, const Vectors& vectors,
                         std::optional<Vector<const std::int64_t>> ids, std::size_t k, std::size_t n_threads,
                         const std::string& kernel) const {
    require(metric.mean.size() == space_->centroids.shape(1), "prepare: metric");
    posh::BlockSearch fixed = make_search(settings, nullptr, 0, n_threads);
    complete_search(fixed, vectors, k);
    const posh::Kernels& functions = find_kernel(kernel);
    return {metric,
            functions,
            k,
            vectors.n_slots,
            std::move(ids),
            [fixed, function = functions.search_blocks](
                const float* queries, std::size_t n, const std::uint8_t* allowed, std::int64_t* slots, float* scores) {
              posh::BlockSearch search = fixed;
              search.queries = queries;
              search.n_queries = n;
              search.allowed = allowed;
              return function(search, slots, scores);
            }};
  }

  // Computes the routing scores of all lists for queries that are prepared already: see RoutingScoresFn.
  void routing_scores(Rows queries, Matrix<float> scores, const std::string& kernel) const {
    require(queries.shape(1) == space_->centroids.shape(1) && scores.shape(0) == queries.shape(0) &&
                scores.shape(1) == lists_->n_lists(),
            "routing_scores: shapes");
    posh::BlockSearch search = make_search_in_space(queries.data(), queries.shape(0));
    run([&, function = find_kernel(kernel).routing_scores] {
      function(search, scores.data());
      return true;
    });
  }

  void lists_of_slots(Vector<std::int32_t> lists) const { posh::lists_of_slots(*lists_, lists.data(), lists.shape(0)); }

  void sample_counts(const Settings& settings, Rows queries, std::uint64_t seed, Matrix<float> expected,
                     Matrix<float> counts, const std::string& kernel) const {
    const std::size_t n = queries.shape(0), n_groups = expected.shape(1);
    require(expected.shape(0) == n && counts.shape(0) == n && counts.shape(1) == n_groups && !lists_->blocks.empty(),
            "sample_counts: shapes");
    require(queries.shape(1) == space_->centroids.shape(1), "sample_counts: shapes");
    posh::BlockSearch search = make_search(settings, queries.data(), n, 1);
    search.k = 1;
    run([&, function = find_kernel(kernel).sample_counts] {
      function(search, n_groups, seed, expected.data(), counts.data());
      return true;
    });
  }

 private:
  Blocks(std::shared_ptr<const Space> space, std::shared_ptr<const posh::BlockLists> lists)
      : space_(std::move(space)), lists_(std::move(lists)) {}

  // Checks that the arguments agree, and sets k and the stored vectors.
  void complete_search(posh::BlockSearch& search, const Vectors& vectors, std::size_t k) const {
    require(k >= 1 && k <= search.n_keep, "search: results");
    search.k = k;
    set_vectors(search, vectors);
  }

  void set_vectors(posh::BlockSearch& search, const Vectors& vectors) const {
    const bool only_residuals = vectors.kind == posh::Stored::residuals;
    require(only_residuals ? !space_->reduction() : vectors.n_features == search.n_features, "search: vectors");
    search.stored = vectors.kind;
    search.vectors = vectors.data;
    search.n_slots = vectors.n_slots;
  }

  posh::BlockSearch make_search(const Settings& settings, const float* queries, std::size_t n_queries,
                                std::size_t n_threads) const {
    const std::size_t n_planes = settings.n_plus + settings.n_minus;
    require(settings.n_probe <= lists_->n_lists() && settings.n_plus % 16 == 0 && settings.n_minus % 16 == 0 &&
                n_planes >= 16 && n_planes < 512 && std::max(settings.n_plus, settings.n_minus) <= settings.n_scanned &&
                settings.n_scanned <= space_->shape.n_bits && n_threads >= 1 && n_queries < (std::size_t{1} << 31),
            "search: settings");
    posh::BlockSearch search = make_search_in_space(queries, n_queries);
    search.n_probe = settings.n_probe;
    search.reach = settings.reach;
    search.n_plus = settings.n_plus;
    search.n_scanned = settings.n_scanned;
    search.n_minus = settings.n_minus;
    search.n_keep = settings.n_keep;
    search.thresholds = settings.thresholds.data();
    search.n_thresholds = settings.thresholds.shape(0);
    search.threshold_scale = settings.threshold_scale;
    search.half_margin = settings.half_margin;
    search.has_first = settings.first.has_value();
    if (settings.first) std::tie(search.first_intercept, search.first_slope) = *settings.first;
    search.min_shared = settings.min_shared;
    search.n_threads = n_threads;
    search.poll = check_signals;
    return search;
  }

  posh::BlockSearch make_search_in_space(const float* queries, std::size_t n_queries) const {
    posh::BlockSearch search{};
    search.lists = lists_.get();
    search.router = &space_->router;
    search.projection = &space_->projection;
    search.reducer = space_->reducer();
    search.queries = queries;
    search.n_queries = n_queries;
    search.centroids = space_->centroids.data();
    search.coded_centroids = space_->coded_centroids.data();
    search.projected_centroids = space_->projected_centroids.data();
    search.n_features = space_->centroids.shape(1);
    search.is_distance = space_->is_distance;
    return search;
  }

  std::shared_ptr<const Space> space_;
  std::shared_ptr<const posh::BlockLists> lists_;
};

void nearest_lists(const posh::Router& router, Rows vectors, Vector<std::int32_t> lists, std::size_t n_threads,
                   const std::string& kernel) {
  require(vectors.shape(1) == router.n_columns && lists.shape(0) == vectors.shape(0) && n_threads >= 1,
          "nearest: shapes");
  const posh::Routing routing{&router, vectors.data(), vectors.shape(0), n_threads, check_signals};
  run([&, function = find_kernel(kernel).nearest_lists] { return function(routing, lists.data()); });
}

// Projects vectors (n, d) by Hadamard matrices times signs (n_bits / size, d). Signs may be scaled: ±factor gives
// factor times the projections.
void hadamard_project(Rows vectors, Rows signs, Matrix<float> out, const std::string& kernel) {
  const std::size_t n_bits = out.shape(1);
  require(out.shape(0) == vectors.shape(0), "hadamard: shapes");
  const posh::Projection projection = make_projection(signs, n_bits, vectors.shape(1));
  const posh::ProjectRowsFn project_rows = find_kernel(kernel).project_rows;
  nb::gil_scoped_release unlocked;
  project_rows(projection, vectors.data(), vectors.shape(0), out.data());
}

}  // namespace

void bind_blocks(nb::module_& m) {
  const auto in = [](const char* name) { return nb::arg(name).noconvert(); };
  nb::class_<posh::Router>(m, "Router")
      .def(
          "__init__",
          [](posh::Router* self, Rows centroids, Floats bias) {
            new (self) posh::Router(make_router(centroids, bias));
          },
          in("centroids"), in("bias"))
      .def("nearest", nearest_lists, in("vectors"), in("lists"), nb::arg("n_threads"), nb::arg("kernel"));
  m.def("hadamard_project", hadamard_project, in("vectors"), in("signs"), in("out"), nb::arg("kernel"));
  nb::class_<Space>(m, "BlockSpace")
      .def(nb::init<std::size_t, std::size_t, Rows, Rows, Floats, std::optional<Rows>, std::optional<Rows>,
                    std::optional<Rows>, bool>(),
           nb::kw_only(), nb::arg("n_bits"), nb::arg("n_active"), in("centroids"), in("routing"), in("routing_bias"),
           in("weights").none(), in("signs").none(), in("reduction").none(), nb::arg("is_distance"));
  nb::class_<Settings>(m, "BlockSettings")
      .def(
          "__init__",
          [](Settings* self, std::size_t n_probe, unsigned power, float bound, float spread, std::size_t n_plus,
             std::size_t n_minus, std::size_t n_scanned, std::size_t n_keep, Vector<const std::int32_t> thresholds,
             float threshold_scale, float half_margin, std::optional<std::tuple<float, float>> first,
             float min_shared) {
            const std::int32_t* end = thresholds.data() + thresholds.shape(0);
            const auto most = static_cast<std::int32_t>(n_plus + n_minus + 1);
            require(thresholds.shape(0) >= 2 && thresholds.data()[0] == 0 &&
                        std::all_of(thresholds.data(), end, [=](std::int32_t t) { return t >= 0 && t <= most; }),
                    "settings: thresholds");
            require(n_probe >= 1 || (power >= 1 && bound >= 0.0f && spread >= 0.0f), "settings: lists");
            new (self) Settings{n_probe,    {power, bound, spread}, n_plus,      n_minus, n_scanned, n_keep,
                                thresholds, threshold_scale,        half_margin, first,   min_shared};
          },
          nb::kw_only(), nb::arg("n_probe"), nb::arg("power"), nb::arg("bound"), nb::arg("spread"), nb::arg("n_plus"),
          nb::arg("n_minus"), nb::arg("n_scanned"), nb::arg("n_keep"), in("thresholds"), nb::arg("threshold_scale"),
          nb::arg("half_margin"), nb::arg("first").none(), nb::arg("min_shared"));
  nb::class_<Vectors>(m, "BlockVectors")
      .def(nb::init<std::optional<Rows>, std::optional<Matrix<const std::uint16_t>>, std::size_t>(),
           in("floats").none(), in("halves").none(), nb::arg("n_slots"));
  nb::class_<Blocks>(m, "Blocks")
      .def(nb::init<std::shared_ptr<const Space>>(), nb::arg("space"))
      .def("with_documents", &Blocks::with_documents, in("vectors"), in("lists"), in("slots"), nb::arg("n_threads"),
           nb::arg("kernel"))
      .def("without", &Blocks::without, in("removed"))
      .def("rearranged", &Blocks::rearranged, nb::arg("space"), in("sources"))
      .def("count_documents", &Blocks::count_documents)
      .def("slots_of_lists", &Blocks::slots_of_lists, in("chosen"))
      .def("to_arrays", &Blocks::to_arrays)
      .def_static("from_arrays", &Blocks::from_arrays, nb::arg("space"), in("memory"), in("table"), in("groups"),
                  in("live"), nb::arg("n_stored"))
      .def_prop_ro("n_stored", &Blocks::n_stored)
      .def_prop_ro("nbytes", &Blocks::nbytes)
      .def("search", &Blocks::search, nb::arg("settings"), in("queries"), nb::arg("vectors"), in("allowed").none(),
           in("ids"), in("scores"), nb::arg("n_threads"), nb::arg("kernel"))
      .def("prepare", &Blocks::prepare, nb::arg("settings"), nb::arg("metric"), nb::arg("vectors"), in("ids").none(),
           nb::arg("k"), nb::arg("n_threads"), nb::arg("kernel"), nb::keep_alive<0, 1>(), nb::keep_alive<0, 2>(),
           nb::keep_alive<0, 3>(), nb::keep_alive<0, 4>())
      .def("search_radius", &Blocks::search_radius, nb::arg("settings"), in("queries"), in("bounds"), nb::arg("margin"),
           nb::arg("vectors"), in("allowed").none(), nb::arg("n_threads"), nb::arg("kernel"))
      .def("routing_scores", &Blocks::routing_scores, in("queries"), in("scores"), nb::arg("kernel"))
      .def("lists_of_slots", &Blocks::lists_of_slots, in("lists"))
      .def("sample_counts", &Blocks::sample_counts, nb::arg("settings"), in("queries"), nb::arg("seed"), in("expected"),
           in("counts"), nb::arg("kernel"));
}
