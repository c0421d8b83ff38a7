// Winner selection without intrinsics. The compiler vectorises the moments; collecting bits needs no branch.
#include "winners_guess.h"

namespace posh {
namespace {

struct WinnersPortable {
  static Moments moments(const float* row, std::size_t n) {
    constexpr std::size_t lanes = 8;
    float sum[lanes] = {}, squares[lanes] = {};
    const std::size_t n_in_lanes = n - n % lanes;
    for (std::size_t i = 0; i < n_in_lanes; i += lanes)
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        sum[lane] += row[i + lane];
        squares[lane] += row[i + lane] * row[i + lane];
      }
    for (std::size_t i = n_in_lanes; i < n; ++i) {
      sum[0] += row[i];
      squares[0] += row[i] * row[i];
    }
    float total = 0, total_squares = 0;
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      total += sum[lane];
      total_squares += squares[lane];
    }
    const float mean = total / n;
    return {mean, std::sqrt(std::max(0.0f, total_squares / n - mean * mean))};
  }

  static std::size_t above(const float* row, std::size_t n, float threshold, std::uint16_t* bits) {
    std::size_t n_reaching = 0;
    for (std::size_t bit = 0; bit < n; ++bit) {
      bits[n_reaching] = static_cast<std::uint16_t>(bit);
      n_reaching += row[bit] >= threshold;
    }
    return n_reaching;
  }

  static std::size_t count(const float* scores, std::size_t n, float threshold) {
    std::uint32_t n_reaching = 0;
    for (std::size_t i = 0; i < n; ++i) n_reaching += scores[i] >= threshold;
    return n_reaching;
  }

  static void keep(const float* scores, std::size_t n, float threshold, std::uint16_t* bits) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < n; ++i) {
      bits[kept] = bits[i];
      kept += scores[i] >= threshold;
    }
  }
};

}  // namespace

void winners_portable(const float* scores, std::size_t n_rows, std::size_t n_bits, std::size_t n_active,
                      std::uint16_t* winners) {
  winners_by_guess<WinnersPortable>(scores, n_rows, n_bits, n_active, winners);
}

}  // namespace posh
