// The primitives of the search in a graph without vector instructions: the specification of the others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "graph_search.h"

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

template <class Base>
struct GraphPlain : Base {
  static std::int32_t dot(const std::int8_t* a, const std::int8_t* b, std::size_t n, std::int32_t) {
    std::int32_t sum = 0;
    for (std::size_t j = 0; j < n; ++j) sum += a[j] * b[j];
    return sum;
  }

  static void fill_tables(const std::int8_t* steps, std::size_t n, std::uint8_t* tables) {
    for (std::size_t at = 0; at < n; at += 4)
      for (unsigned entry = 0; entry < 16; ++entry) {
        int sum = 0;
        for (unsigned i = 0; i < 4; ++i) sum += (entry >> i & 1 ? steps[at + i] : 0) - std::min<int>(steps[at + i], 0);
        tables[4 * at + entry] = static_cast<std::uint8_t>(sum);
      }
  }

  static void add_codes(const std::uint8_t* codes, const std::uint8_t* tables, std::size_t n_rows,
                        std::uint16_t* sums) {
    std::fill_n(sums, graph_group, std::uint16_t{0});
    for (std::size_t row = 0; row < n_rows; ++row, codes += 16, tables += 16)
      for (std::size_t i = 0; i < 16; ++i) {
        sums[i] = static_cast<std::uint16_t>(sums[i] + tables[codes[i] & 15]);
        sums[16 + i] = static_cast<std::uint16_t>(sums[16 + i] + tables[codes[i] >> 4]);
      }
  }

  static std::uint32_t estimate(const Group& group, const Product& product, float bound, float* estimates) {
    std::uint32_t near = 0;
    for (std::size_t i = 0; i < graph_group; ++i) {
      const float along = static_cast<float>(group.sums[i]) * product.scale + product.offset;
      const float add = static_cast<float>(group.adds[i]) * group.add_step + group.add_low;
      const float factor = static_cast<float>(group.factors[i]) * group.factor_step + group.factor_low;
      estimates[i] = along * factor + add;
      if (estimates[i] < bound) near |= std::uint32_t{1} << i;
    }
    return near;
  }
};

}  // namespace
}  // namespace posh
