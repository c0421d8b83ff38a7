// Hamming search by words, compiled for CPUs that count the bits of a word in one instruction.
#if defined(__x86_64__)
#include <algorithm>
#include <vector>

#include "kernels.h"
#include "keys.h"

#include "avx2_begin.h"
#include "hamming.h"

namespace posh {

bool hamming_topk_avx2(const HammingSearch& s, std::int64_t* ids, std::int32_t* scores) {
  return hamming_topk<ByWords>(s, ids, scores);
}

}  // namespace posh
#include "avx2_end.h"
#endif
