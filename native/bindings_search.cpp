// The door to packing and searching: compares shapes, refuses numbers out of range, releases the GIL, calls.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <tuple>

#include "bindings.h"

void require(bool condition, const char* tag) {
  if (!condition) throw std::invalid_argument(tag);
}

const std::uint64_t* bitmap(const std::optional<Words>& words, std::size_t n_docs) {
  if (!words) return nullptr;
  require(words->shape(0) >= (n_docs + 63) / 64, "bitmap: length");
  return words->data();
}

bool signalled() {
  nb::gil_scoped_acquire locked;
  return PyErr_CheckSignals() != 0;
}

namespace {

constexpr std::size_t max_slot = std::size_t{1} << 47;

using SegmentArrays =
    std::tuple<Matrix<const std::uint64_t>, std::size_t, std::int64_t, std::optional<Words>, std::optional<Words>>;

bool below(Matrix<const std::uint16_t> codes, std::size_t n_bits) {
  return std::all_of(codes.data(), codes.data() + codes.size(), [=](std::uint16_t bit) { return bit < n_bits; });
}

void pack(Matrix<const std::uint16_t> codes, std::size_t first_doc, Matrix<std::uint64_t> planes) {
  require(first_doc <= 64 * planes.shape(1) && codes.shape(0) <= 64 * planes.shape(1) - first_doc, "pack: shapes");
  nb::gil_scoped_release unlocked;
  require(below(codes, planes.shape(0)), "pack: bits");
  posh::pack(codes.data(), codes.shape(0), codes.shape(1), first_doc, planes.shape(1), planes.data());
}

std::vector<posh::Segment> segments_of(const std::vector<SegmentArrays>& arrays, std::size_t n_bits) {
  std::vector<posh::Segment> segments;
  for (const auto& [planes, n_docs, first_slot, live, filter] : arrays) {
    const std::size_t stride = planes.shape(1);
    require(planes.shape(0) == n_bits && n_docs <= 64 * stride && (n_docs + 255) / 256 * 4 <= stride &&
                n_bits * stride <= UINT32_MAX,
            "segment: shapes");
    require(first_slot >= 0 && first_slot + n_docs <= max_slot, "segment: slots");
    segments.push_back(
        {planes.data(), stride, n_docs, first_slot, bitmap(live, n_docs), bitmap(filter, n_docs)});
  }
  return segments;
}

void run(const std::string& kernel, const posh::Search& search, Matrix<std::int64_t> ids, Matrix<std::int32_t> scores) {
  const posh::Kernels& k = kernel_named(kernel);
  bool finished;
  {
    nb::gil_scoped_release unlocked;
    finished = k.overlap_topk(search, ids.data(), scores.data());
  }
  if (!finished) throw nb::python_error();
}

posh::Search search_for(const std::vector<posh::Segment>& segments, Matrix<const std::uint16_t> queries,
                        std::size_t n_bits, std::size_t n_threads, Matrix<std::int64_t> ids,
                        Matrix<std::int32_t> scores) {
  const std::size_t n = queries.shape(0), n_active = queries.shape(1), k = ids.shape(1);
  require(ids.shape(0) == n && scores.shape(0) == n && scores.shape(1) == k && k >= 1 && n_active >= 1 &&
              n_active <= n_bits && n_bits <= 65536 && n_threads >= 1,
          "search: shapes");
  require(below(queries, n_bits), "search: bits");
  return {segments.data(), segments.size(), n_bits,    queries.data(), n,        n_active,
          nullptr,         nullptr,         k,         n_threads,      signalled};
}

void overlap_topk(const std::vector<SegmentArrays>& arrays, std::size_t n_bits, Matrix<const std::uint16_t> queries,
                  Matrix<std::int64_t> ids, Matrix<std::int32_t> scores, std::size_t n_threads,
                  const std::string& kernel) {
  const std::vector<posh::Segment> segments = segments_of(arrays, n_bits);
  run(kernel, search_for(segments, queries, n_bits, n_threads, ids, scores), ids, scores);
}

void overlap_topk_lists(const std::vector<SegmentArrays>& arrays, std::size_t n_bits,
                        Matrix<const std::uint16_t> queries, Vector<const std::int64_t> offsets,
                        Vector<const std::int32_t> visits, Matrix<std::int64_t> ids, Matrix<std::int32_t> scores,
                        std::size_t n_threads, const std::string& kernel) {
  const std::vector<posh::Segment> segments = segments_of(arrays, n_bits);
  posh::Search search = search_for(segments, queries, n_bits, n_threads, ids, scores);
  const std::int64_t *first = offsets.data(), *last = first + offsets.shape(0);
  require(offsets.shape(0) == search.n_queries + 1 && std::is_sorted(first, last) && *first >= 0 &&
              last[-1] <= static_cast<std::int64_t>(visits.shape(0)),
          "lists: offsets");
  const auto exists = [&](std::int32_t s) { return s >= 0 && static_cast<std::size_t>(s) < segments.size(); };
  require(std::all_of(visits.data(), visits.data() + visits.shape(0), exists), "lists: segments");
  search.offsets = offsets.data();
  search.visits = visits.data();
  run(kernel, search, ids, scores);
}

}  // namespace

void bind_search(nb::module_& m) {
  const auto in = [](const char* name) { return nb::arg(name).noconvert(); };
  m.def("pack", pack, in("codes"), nb::arg("first_doc"), in("planes"));
  m.def("overlap_topk", overlap_topk, in("segments"), nb::arg("n_bits"), in("queries"), in("ids"), in("scores"),
        nb::arg("n_threads"), nb::arg("kernel"));
  m.def("overlap_topk_lists", overlap_topk_lists, in("segments"), nb::arg("n_bits"), in("queries"),
        in("offsets"), in("visits"), in("ids"), in("scores"), nb::arg("n_threads"), nb::arg("kernel"));
}
