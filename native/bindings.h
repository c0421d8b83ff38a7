// What the files of the door share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "kernels.h"

namespace nb = nanobind;

template <class T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

using Words = Vector<const std::uint64_t>;

const posh::Kernels& kernel_named(const std::string& name);
void bind_search(nb::module_& m);
void bind_tables(nb::module_& m);
bool signalled();
void require(bool condition, const char* tag);
const std::uint64_t* bitmap(const std::optional<Words>& words, std::size_t n_docs);

// Does long work without the GIL; work() returns false when a signal has asked it to stop.
template <class Work>
void run(Work work) {
  bool finished;
  {
    nb::gil_scoped_release unlocked;
    finished = work();
  }
  if (!finished) throw nb::python_error();
}
