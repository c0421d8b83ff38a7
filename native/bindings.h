// Types and helpers that all bindings_*.cpp files use.
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
using Floats = Vector<const float>;
using RealRows = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;  // of float or double

// Returns the implementation of this name; throws if this CPU cannot run it.
const posh::Kernels& find_kernel(const std::string& name);

// Each adds the functions of its file to the module.
void bind_blocks(nb::module_& m);
void bind_graph(nb::module_& m);
void bind_metric(nb::module_& m);
void bind_prepared(nb::module_& m);
void bind_search(nb::module_& m);
void bind_tables(nb::module_& m);

// Runs Python's signal handlers; returns whether one raised an exception, for instance after Ctrl-C.
bool check_signals();

// Throws std::invalid_argument(tag) if the condition is false.
void require(bool condition, const char* tag);

// Returns the words of a bitmap of n_docs bits, or null if there is none.
const std::uint64_t* bitmap(const std::optional<Words>& words, std::size_t n_docs);

// Runs work() without the GIL. If work() returns false, a signal has stopped it: throws the exception of its handler.
template <class Work>
void run(Work work) {
  bool finished;
  {
    nb::gil_scoped_release unlocked;
    finished = work();
  }
  if (!finished) throw nb::python_error();
}
