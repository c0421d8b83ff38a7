// Hamming search: bit by bit (`scalar`, the specification) and by words (`portable`).
#include "hamming.h"

namespace posh {
namespace {

struct BitByBit {
  static std::size_t different(const std::uint8_t* a, const std::uint8_t* b, std::size_t n_bytes) {
    std::size_t count = 0;
    for (std::size_t bit = 0; bit < 8 * n_bytes; ++bit) count += (a[bit / 8] ^ b[bit / 8]) >> (bit % 8) & 1;
    return count;
  }
};

}  // namespace

bool hamming_topk_scalar(const HammingSearch& s, std::int64_t* ids, std::int32_t* scores) {
  return hamming_topk<BitByBit>(s, ids, scores);
}

bool hamming_topk_portable(const HammingSearch& s, std::int64_t* ids, std::int32_t* scores) {
  return hamming_topk<ByWords>(s, ids, scores);
}

}  // namespace posh
