// Winner selection by guessing: the algorithm, written once for every instruction set.
//
// Scores of a linear projection are roughly Gaussian over the bits, so mean + z * deviation separates
// slightly more than n_active of them from the rest. One pass collects the bits above that guess; the
// exact order is then settled among these few. A guess that caught too little is lowered; the last
// resort takes every bit, so the result never depends on the guess, only the time does.
//
// `Isa` supplies two primitives over one row:
//   Moments moments(const float* row, size_t n)                        mean and deviation, any accuracy
//   size_t  above(const float* row, size_t n, float t, uint16_t* bits) ascending bits with row[bit] >= t
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "kernels.h"
#include "score_key.h"

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

struct Moments {
  float mean, deviation;
};

// z with P(N(0,1) > z) = p, by bisection on erfc: called a few times per tile, so clarity wins.
float upper_quantile(double p) {
  double low = -40.0, high = 40.0;
  for (int i = 0; i < 60; ++i) {
    const double z = 0.5 * (low + high);
    (0.5 * std::erfc(z * 0.70710678118654752) > p ? low : high) = z;
  }
  return static_cast<float>(low);
}

// Writes the n_active best of the candidate bits, keeping their ascending order.
void keep_best(const float* row, const std::uint16_t* candidates, std::size_t n_candidates,
                      std::size_t n_active, std::uint64_t* keys, std::uint64_t* order, std::uint16_t* winners) {
  for (std::size_t i = 0; i < n_candidates; ++i) order[i] = keys[i] = score_key(row[candidates[i]], candidates[i]);
  std::nth_element(order, order + (n_active - 1), order + n_candidates, std::greater<>());
  const std::uint64_t last = order[n_active - 1];
  std::size_t kept = 0;
  for (std::size_t i = 0; kept < n_active; ++i) {
    winners[kept] = candidates[i];
    kept += keys[i] >= last;
  }
}

template <class Isa>
void winners_by_guess(const float* scores, std::size_t n_rows, std::size_t n_bits, std::size_t n_active,
                      std::uint16_t* winners) {
  // The primitives may write one vector past the last candidate.
  std::vector<std::uint16_t> candidates(n_bits + 8);
  std::vector<std::uint64_t> keys(n_bits), order(n_bits);
  const double wanted[] = {1.15 * n_active + 6.0, 2.5 * n_active + 12.0};
  const float z[] = {upper_quantile(wanted[0] / n_bits), upper_quantile(wanted[1] / n_bits)};

  for (std::size_t row = 0; row < n_rows; ++row, scores += n_bits, winners += n_active) {
    const Moments moments = Isa::moments(scores, n_bits);
    std::size_t found = 0;
    for (int guess = 0; guess < 2 && found < n_active; ++guess)
      found = Isa::above(scores, n_bits, moments.mean + z[guess] * moments.deviation, candidates.data());
    if (found < n_active) {
      for (std::size_t bit = 0; bit < n_bits; ++bit) candidates[bit] = static_cast<std::uint16_t>(bit);
      found = n_bits;
    }
    keep_best(scores, candidates.data(), found, n_active, keys.data(), order.data(), winners);
  }
}

}  // namespace
}  // namespace posh
