// Every step here is a part of the time of a single search, which may take 10 µs: so arrays are accessed by the buffer
// protocol and made by NumPy's C API, and numbers are validated while queries are prepared.
#include "bindings_prepared.h"

#include <cstring>
#include <memory>

namespace {

// The parts of NumPy that make arrays. Its C API is a table of functions whose positions and signatures never change,
// so NumPy's headers are not needed. The call of numpy.empty and the buffer protocol take 0.2 µs more for each array.
struct Numpy {
  using NewFromDescr = PyObject* (*)(PyObject* type, PyObject* descr, int n_dims, const Py_ssize_t* shape,
                                     const Py_ssize_t* strides, void* data, int flags, PyObject* prototype);
  static constexpr std::size_t new_from_descr_at = 94;

  nb::object array_type, int64, float32;
  NewFromDescr new_from_descr;

  // Returns an uninitialised array (n, k).
  nb::object make_array(const nb::object& dtype, std::size_t n, std::size_t k) const {
    const Py_ssize_t shape[] = {static_cast<Py_ssize_t>(n), static_cast<Py_ssize_t>(k)};
    PyObject* const descr = nb::object(dtype).release().ptr();  // the function takes this reference
    PyObject* const array = new_from_descr(array_type.ptr(), descr, 2, shape, nullptr, nullptr, 0, nullptr);
    if (!array) throw nb::python_error();
    return nb::steal(array);
  }
};
const Numpy* numpy;  // never destroyed

Numpy import_numpy() {
  const nb::module_ module = nb::module_::import_("numpy");
  const bool is_old = !nb::hasattr(module, "_core");  // before NumPy 2
  const nb::module_ core = nb::module_::import_(is_old ? "numpy.core.multiarray" : "numpy._core.multiarray");
  void* const table = PyCapsule_GetPointer(core.attr("_ARRAY_API").ptr(), nullptr);
  if (!table) throw nb::python_error();
  return {module.attr("ndarray"), module.attr("dtype")("int64"), module.attr("dtype")("float32"),
          reinterpret_cast<Numpy::NewFromDescr>(static_cast<void**>(table)[Numpy::new_from_descr_at])};
}

// Returns the memory of an array that was made here: the first member of its struct, by the stable ABI of NumPy.
template <class T>
T* data_of(const nb::object& array) {
  void* data;
  std::memcpy(&data, reinterpret_cast<const char*>(array.ptr()) + sizeof(PyObject), sizeof data);
  return static_cast<T*>(data);
}

// A contiguous array of numbers, or nothing.
class Buffer {
 public:
  explicit Buffer(nb::handle array)
      : has_view_(PyObject_GetBuffer(array.ptr(), &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) == 0) {
    if (!has_view_) PyErr_Clear();
  }
  ~Buffer() {
    if (has_view_) PyBuffer_Release(&view);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  explicit operator bool() const { return has_view_; }

  Py_buffer view;

 private:
  bool has_view_;
};

}  // namespace

PreparedSearch::PreparedSearch(const posh::Metric& metric, const posh::Kernels& kernel, std::size_t k,
                               std::size_t n_slots, std::optional<Vector<const std::int64_t>> ids, SearchFn search)
    : metric_(metric), prepare_queries_(kernel.prepare_queries), k_(k), n_slots_(n_slots), ids_(std::move(ids)),
      search_(std::move(search)) {
  require(!ids_ || ids_->shape(0) >= n_slots, "prepared: ids");
}

nb::object PreparedSearch::run_among(nb::handle X, Vector<const std::uint8_t> allowed) const {
  require(allowed.shape(0) >= n_slots_, "prepared: allowed");
  return search_for(X, allowed.data());
}

nb::object PreparedSearch::search_for(nb::handle X, const std::uint8_t* allowed) const {
  if (Py_TYPE(X.ptr()) != reinterpret_cast<PyTypeObject*>(numpy->array_type.ptr())) return nb::none();
  const Buffer buffer(X);
  if (!buffer) return nb::none();
  const Py_buffer& view = buffer.view;
  const bool is_double = std::strcmp(view.format, "d") == 0;
  if ((!is_double && std::strcmp(view.format, "f") != 0) || view.ndim < 1 || view.ndim > 2 ||
      static_cast<std::size_t>(view.shape[view.ndim - 1]) != metric_.mean.size())
    return nb::none();
  const std::size_t n = view.ndim == 2 ? static_cast<std::size_t>(view.shape[0]) : 1;
  require(n < (std::size_t{1} << 31), "prepared: queries");

  const nb::object ids = numpy->make_array(numpy->int64, n, k_), scores = numpy->make_array(numpy->float32, n, k_);
  std::int64_t* const slots = data_of<std::int64_t>(ids);
  bool fits;
  ::run([&, to = data_of<float>(scores)] {
    return prepare_and_search({view.buf, is_double, n}, allowed, slots, to, fits);
  });
  if (!fits) return nb::none();
  return nb::make_tuple(ids, scores, replace_slots(n, slots));
}

// Returns false if a signal has stopped the search.
bool PreparedSearch::prepare_and_search(const posh::Reals& vectors, const std::uint8_t* allowed, std::int64_t* slots,
                                        float* scores, bool& fits) const {
  const std::unique_ptr<float[]> queries(new float[vectors.n * metric_.mean.size()]);
  double factor;
  std::unique_ptr<double[]> factors(vectors.n > 1 ? new double[vectors.n] : nullptr);
  double* const to = factors ? factors.get() : &factor;
  fits = prepare_queries_(metric_, vectors, queries.get(), to);
  if (!fits) return true;
  if (!search_(queries.get(), vectors.n, allowed, slots, scores)) return false;
  posh::scale_scores(to, vectors.n, k_, scores);
  return true;
}

// Writes the ids of slots over them; returns the number of rows with fewer than k slots.
std::size_t PreparedSearch::replace_slots(std::size_t n, std::int64_t* slots) const {
  std::size_t n_short = 0;
  for (std::size_t row = 0; row < n; ++row, slots += k_) {
    n_short += slots[k_ - 1] < 0;
    if (ids_)
      for (std::size_t i = 0; i < k_ && slots[i] >= 0; ++i) slots[i] = ids_->data()[slots[i]];
  }
  return n_short;
}

void bind_prepared(nb::module_& m) {
  numpy = new Numpy(import_numpy());
  nb::class_<PreparedSearch>(m, "PreparedSearch")
      .def("run", &PreparedSearch::run, nb::arg("X").none())
      .def("run_among", &PreparedSearch::run_among, nb::arg("X").none(), nb::arg("allowed").noconvert());
}
