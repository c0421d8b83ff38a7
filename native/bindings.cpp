// Python bindings of centring and winner selection. All bindings do the same: compare shapes, release the GIL,
// call the kernel. They contain no algorithm and format no error messages: Python has validated the input.
#include "bindings.h"

#include <stdexcept>

const posh::Kernels& find_kernel(const std::string& name) {
  for (std::size_t i = 0; i < posh::n_kernels; ++i)
    if (name == posh::kernels[i].name && posh::kernels[i].supported()) return posh::kernels[i];
  throw std::invalid_argument("kernel: name");
}

namespace {

std::vector<std::string> kernel_names() {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < posh::n_kernels; ++i)
    if (posh::kernels[i].supported()) names.emplace_back(posh::kernels[i].name);
  return names;
}

template <class T>
float centre(Matrix<const T> vectors, Vector<const T> mean, double factor, Matrix<float> out) {
  const std::size_t n = vectors.shape(0), d = vectors.shape(1);
  if (mean.shape(0) != d || out.shape(0) != n || out.shape(1) != d) throw std::invalid_argument("centre: shapes");
  nb::gil_scoped_release unlocked;
  return posh::centre(vectors.data(), n, d, mean.data(), static_cast<T>(factor), out.data());
}

void winners(Matrix<const float> scores, Matrix<std::uint16_t> out, const std::string& kernel) {
  const std::size_t n = scores.shape(0), n_bits = scores.shape(1), n_active = out.shape(1);
  if (out.shape(0) != n || n_active < 1 || n_active > n_bits || n_bits > 65536)
    throw std::invalid_argument("winners: shapes");
  const posh::Kernels& k = find_kernel(kernel);
  nb::gil_scoped_release unlocked;
  k.winners(scores.data(), n, n_bits, n_active, out.data());
}

}  // namespace

NB_MODULE(_native, m) {
  m.def("kernel_names", kernel_names);
  const auto bind_centre = [&m](auto function) {
    m.def("centre", function, nb::arg("vectors").noconvert(), nb::arg("mean").noconvert(), nb::arg("factor"),
          nb::arg("out").noconvert());
  };
  bind_centre(centre<float>);
  bind_centre(centre<double>);
  m.def("winners", winners, nb::arg("scores").noconvert(), nb::arg("out").noconvert(), nb::arg("kernel"));
  bind_metric(m);  // before the searches, whose signatures name it
  bind_prepared(m);
  bind_blocks(m);
  bind_graph(m);
  bind_search(m);
  bind_tables(m);
}
