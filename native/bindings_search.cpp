// Python bindings of packing and overlap search. They also reject bit numbers and slots that are out of range.
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

bool check_signals() {
  nb::gil_scoped_acquire locked;
  return PyErr_CheckSignals() != 0;
}

namespace {

constexpr std::size_t max_slot = std::size_t{1} << posh::slot_bits;

using SegmentArrays =
    std::tuple<Matrix<const std::uint64_t>, std::size_t, std::int64_t, std::optional<Words>, std::optional<Words>>;

// Whether every bit number is below n_bits.
bool all_below(Matrix<const std::uint16_t> codes, std::size_t n_bits) {
  return std::all_of(codes.data(), codes.data() + codes.size(), [=](std::uint16_t bit) { return bit < n_bits; });
}

void pack(Matrix<const std::uint16_t> codes, std::size_t first_doc, Matrix<std::uint64_t> planes) {
  require(first_doc <= 64 * planes.shape(1) && codes.shape(0) <= 64 * planes.shape(1) - first_doc, "pack: shapes");
  nb::gil_scoped_release unlocked;
  require(all_below(codes, planes.shape(0)), "pack: bits");
  posh::pack(codes.data(), codes.shape(0), codes.shape(1), first_doc, planes.shape(1), planes.data());
}

// The segments of an index, validated once for any number of searches. Keeps their arrays alive.
class Segments {
 public:
  Segments(std::vector<SegmentArrays> arrays, std::size_t n_bits, std::vector<Vector<const std::int64_t>> slots)
      : n_bits_(n_bits), arrays_(std::move(arrays)), slot_arrays_(std::move(slots)) {
    for (const SegmentArrays& segment : arrays_) add(segment);
    require(slot_arrays_.empty() || slot_arrays_.size() == arrays_.size(), "slots: lists");
    for (std::size_t i = 0; i < slot_arrays_.size(); ++i) add_slots(slot_arrays_[i], segments_[i].n_docs);
  }

  posh::Search search(Matrix<const std::uint16_t> queries, std::size_t n_threads, Matrix<std::int64_t> ids,
                      Matrix<std::int32_t> scores) const {
    const std::size_t n = queries.shape(0), n_active = queries.shape(1), k = ids.shape(1);
    require(ids.shape(0) == n && scores.shape(0) == n && scores.shape(1) == k && k >= 1 && n_active >= 1 &&
                n_active <= n_bits_ && n_bits_ <= 65536 && n_threads >= 1,
            "search: shapes");
    require(all_below(queries, n_bits_), "search: bits");
    return {segments_.data(), segments_.size(), n_bits_, queries.data(), n, n_active, k, n_threads, check_signals};
  }

  const std::vector<const std::int64_t*>& slots() const { return slots_; }

 private:
  void add(const SegmentArrays& arrays) {
    const auto& [planes, n_docs, first_slot, live, filter] = arrays;
    const std::size_t stride = planes.shape(1);
    require(planes.shape(0) == n_bits_ && n_docs <= 64 * stride && (n_docs + 255) / 256 * 4 <= stride &&
                n_bits_ * stride <= UINT32_MAX,
            "segment: shapes");
    require(first_slot >= 0 && first_slot + n_docs <= max_slot, "segment: slots");
    segments_.push_back({planes.data(), stride, n_docs, first_slot, bitmap(live, n_docs), bitmap(filter, n_docs)});
  }

  void add_slots(const Vector<const std::int64_t>& slots, std::size_t n_docs) {
    const std::int64_t *first = slots.data(), *last = first + slots.shape(0);
    require(slots.shape(0) == n_docs && std::is_sorted(first, last), "slots: ascending");
    require(n_docs == 0 || (*first >= 0 && static_cast<std::size_t>(last[-1]) < max_slot), "slots: range");
    slots_.push_back(first);
  }

  std::size_t n_bits_;
  std::vector<SegmentArrays> arrays_;
  std::vector<Vector<const std::int64_t>> slot_arrays_;
  std::vector<posh::Segment> segments_;
  std::vector<const std::int64_t*> slots_;
};

void overlap_topk(const Segments& segments, Matrix<const std::uint16_t> queries, Matrix<std::int64_t> ids,
                  Matrix<std::int32_t> scores, std::size_t n_threads, const std::string& kernel) {
  const posh::Search search = segments.search(queries, n_threads, ids, scores);
  run([&, topk = find_kernel(kernel).overlap_topk] { return topk(search, ids.data(), scores.data()); });
}

void overlap_lists(const Segments& segments, Matrix<const std::uint16_t> queries, Vector<const std::int64_t> offsets,
                   Vector<const std::int32_t> visits, Matrix<std::int64_t> ids, Matrix<std::int32_t> scores,
                   std::size_t n_threads, const std::string& kernel) {
  const posh::ListSearch search{segments.search(queries, n_threads, ids, scores), segments.slots().data(),
                                offsets.data(), visits.data()};
  const std::int64_t *first = offsets.data(), *last = first + offsets.shape(0);
  require(segments.slots().size() == search.n_segments, "lists: slots");
  require(offsets.shape(0) == search.n_queries + 1 && std::is_sorted(first, last) && *first >= 0 &&
              last[-1] <= static_cast<std::int64_t>(visits.shape(0)),
          "lists: offsets");
  const auto exists = [&](std::int32_t s) { return s >= 0 && static_cast<std::size_t>(s) < search.n_segments; };
  require(std::all_of(visits.data(), visits.data() + visits.shape(0), exists), "lists: segments");
  run([&, lists = find_kernel(kernel).overlap_lists] { return lists(search, ids.data(), scores.data()); });
}

}  // namespace

void bind_search(nb::module_& m) {
  const auto in = [](const char* name) { return nb::arg(name).noconvert(); };
  m.def("pack", pack, in("codes"), nb::arg("first_doc"), in("planes"));
  nb::class_<Segments>(m, "Segments")
      .def(nb::init<std::vector<SegmentArrays>, std::size_t, std::vector<Vector<const std::int64_t>>>(), in("segments"),
           nb::arg("n_bits"), in("slots"));
  m.def("overlap_topk", overlap_topk, nb::arg("segments"), in("queries"), in("ids"), in("scores"), nb::arg("n_threads"),
        nb::arg("kernel"));
  m.def("overlap_lists", overlap_lists, nb::arg("segments"), in("queries"), in("offsets"), in("visits"), in("ids"),
        in("scores"), nb::arg("n_threads"), nb::arg("kernel"));
}
