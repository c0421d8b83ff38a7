// Python bindings of metrics. See metric.h.
#include "metric.h"

#include "bindings.h"

namespace {

posh::Metric make_metric(const std::string& name, Vector<const double> mean, double unit) {
  using Kind = posh::Metric::Kind;
  require(name == "cosine" || name == "euclidean" || name == "dot", "metric: name");
  const Kind kind = name == "cosine" ? Kind::cosine : name == "dot" ? Kind::dot : Kind::euclidean;
  return {kind, {mean.data(), mean.data() + mean.shape(0)}, unit};
}

posh::Reals reals_of(const RealRows& vectors) {
  const bool is_double = vectors.dtype() == nb::dtype<double>();
  require(is_double || vectors.dtype() == nb::dtype<float>(), "reals: dtype");
  return {vectors.data(), is_double, vectors.shape(0)};
}

bool prepare_documents(const posh::Metric& metric, RealRows vectors, Matrix<float> out, const std::string& kernel) {
  require(
      vectors.shape(1) == metric.mean.size() && out.shape(0) == vectors.shape(0) && out.shape(1) == vectors.shape(1),
      "prepare_documents: shapes");
  const posh::PrepareDocumentsFn function = find_kernel(kernel).prepare_documents;
  const posh::Reals reals = reals_of(vectors);
  nb::gil_scoped_release unlocked;
  return function(metric, reals, out.data());
}

bool prepare_queries(const posh::Metric& metric, RealRows vectors, Matrix<float> out, Vector<double> factors,
                     const std::string& kernel) {
  require(vectors.shape(1) == metric.mean.size() && out.shape(0) == vectors.shape(0) &&
              out.shape(1) == vectors.shape(1) && factors.shape(0) == vectors.shape(0),
          "prepare_queries: shapes");
  const posh::PrepareQueriesFn function = find_kernel(kernel).prepare_queries;
  const posh::Reals reals = reals_of(vectors);
  nb::gil_scoped_release unlocked;
  return function(metric, reals, out.data(), factors.data());
}

void scale_scores(Vector<const double> factors, Matrix<float> scores) {
  require(factors.shape(0) == scores.shape(0), "scale_scores: shapes");
  posh::scale_scores(factors.data(), scores.shape(0), scores.shape(1), scores.data());
}

}  // namespace

void bind_metric(nb::module_& m) {
  const auto in = [](const char* name) { return nb::arg(name).noconvert(); };
  nb::class_<posh::Metric>(m, "Metric")
      .def(
          "__init__",
          [](posh::Metric* self, const std::string& name, Vector<const double> mean, double unit) {
            new (self) posh::Metric(make_metric(name, mean, unit));
          },
          nb::arg("name"), in("mean"), nb::arg("unit"))
      .def("prepare_documents", prepare_documents, in("vectors"), in("out"), nb::arg("kernel"))
      .def("prepare_queries", prepare_queries, in("vectors"), in("out"), in("factors"), nb::arg("kernel"))
      .def_static("scale_scores", scale_scores, in("factors"), in("scores"));
}
