// Fetches memory into the cache before it is read.
#pragma once

#include <cstddef>

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

// GCC regards a function that only prefetches as one without effect, and removes its calls. The empty assembly keeps
// them, which tests/test_linkage.py verifies.
inline __attribute__((always_inline)) void prefetch_line(const void* at) {
  __builtin_prefetch(at);
  asm volatile("" : : "r"(at));
}

inline __attribute__((always_inline)) void prefetch_bytes(const void* from, std::size_t n) {
  for (std::size_t at = 0; at < n; at += 64) prefetch_line(static_cast<const char*>(from) + at);
}

}  // namespace
}  // namespace posh
