// Winner selection by guessing: the algorithm, written once for every instruction set.
//
// Scores of a linear projection are roughly Gaussian over the bits, so slightly more than n_active of them reach a
// threshold of mean + z * deviation, for a suitable z.
// 1. Guess such a threshold and collect the bits that reach it, the candidates.
// 2. If there are fewer than n_active candidates, guess lower. After the last guess, take a safe threshold.
// 3. Raise the threshold until exactly n_active candidates reach it. These are the winners.
// 4. If equal scores make step 3 impossible, or if no guess was right, choose the winners by their keys.
// So a guess decides how long the selection takes, never its result.
//
// `Isa` supplies four primitives. t is a threshold; a score reaches it if score >= t.
//   Moments moments(const float* row, size_t n)
//     mean and deviation of n scores, roughly
//   size_t above(const float* row, size_t n, float t, uint16_t* bits)
//     writes the bits whose scores reach t, in ascending order, and returns their number
//   size_t count(const float* scores, size_t n, float t)
//     returns how many of n scores reach t
//   void keep(const float* scores, size_t n, float t, uint16_t* bits)
//     moves those of n bits whose scores reach t to the front, in order; scores[i] is the score of bits[i]
// `above` and `keep` may write, and `count` and `keep` may read, up to `slack` elements past the last one. Scores
// past the last one are NaN, which reaches no threshold.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "kernels.h"
#include "keys.h"

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

constexpr std::size_t slack = 8, n_guesses = 3;

struct Moments {
  float mean, deviation;
};

// z with P(N(0,1) > z) = p, to three digits (Abramowitz & Stegun, 26.2.23).
float upper_quantile(double p) {
  const double tail = std::max(1e-9, std::min(p, 1.0 - p)), t = std::sqrt(-2.0 * std::log(tail));
  const double z =
      t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
  return static_cast<float>(p < 0.5 ? z : -z);
}

// A threshold in deviations above the mean, and the first step when it is raised.
struct Guess {
  Guess(double wanted, std::size_t n_active, std::size_t n_bits)
      : z(upper_quantile(wanted / n_bits)),
        step((upper_quantile(static_cast<double>(n_active) / n_bits) - z) / static_cast<float>(wanted - n_active)) {}
  float z;     // about `wanted` scores reach this threshold
  float step;  // raising the threshold by this much removes one candidate, on average
};

// Bits that may win, in ascending order, and their scores.
struct BitCandidates {
  explicit BitCandidates(std::size_t n_bits)
      : bits(n_bits + slack), scores(n_bits + slack), keys(n_bits), order(n_bits) {}
  std::size_t n = 0;
  std::vector<std::uint16_t> bits;
  std::vector<float> scores;
  std::vector<std::uint64_t> keys, order;

  void take_scores(const float* row) {
    for (std::size_t i = 0; i < n; ++i) scores[i] = row[bits[i]];
    std::fill_n(scores.begin() + n, slack, std::numeric_limits<float>::quiet_NaN());  // NaN reaches no threshold
  }
};

// Raises `threshold`, which all candidates reach, until exactly n_active of them reach it. `step` is the height that
// removes one candidate, on average. Returns false if no such threshold is found, for instance because the scores
// of the last winner and the first loser are equal.
template <class Isa>
bool raise(const BitCandidates& candidates, std::size_t n_active, float step, float& threshold) {
  constexpr int max_attempts = 16;
  float high = 0;
  std::size_t reach_low = candidates.n, reach_high = 0;
  bool bounded = false;
  for (int attempt = 0; attempt < max_attempts && reach_low > n_active; ++attempt) {
    const float losers = static_cast<float>(reach_low - n_active);
    const float t = threshold + (bounded ? (high - threshold) * losers / static_cast<float>(reach_low - reach_high)
                                         : step * losers);
    const std::size_t reach = Isa::count(candidates.scores.data(), candidates.n, t);
    if (reach >= n_active) {
      threshold = t, reach_low = reach;
    } else {
      high = t, reach_high = reach, bounded = true;
    }
  }
  return reach_low == n_active;
}

// Chooses the winners among the candidates by their keys. Works for all scores: equal ones, infinities, NaN.
void keep_by_key(BitCandidates& candidates, const float* row, std::size_t n_active, std::uint16_t* winners) {
  std::uint64_t *keys = candidates.keys.data(), *order = candidates.order.data();
  for (std::size_t i = 0; i < candidates.n; ++i)
    order[i] = keys[i] = score_key(row[candidates.bits[i]], candidates.bits[i]);
  std::nth_element(order, order + (n_active - 1), order + candidates.n, std::greater<>());
  const std::uint64_t last = order[n_active - 1];
  std::size_t kept = 0;
  for (std::size_t i = 0; kept < n_active; ++i) {
    winners[kept] = candidates.bits[i];
    kept += keys[i] >= last;
  }
}

// A threshold that at least n_active scores reach, and few others do: of the highest scores of n_classes classes of
// bits, the n_active-th. Bit i is in class i % n_classes. With four times as many classes as winners, two winners are
// seldom in the same class. NaN is in no class.
float safe_threshold(BitCandidates& candidates, const float* row, std::size_t n_bits, std::size_t n_active,
                     std::size_t n_classes) {
  float* highest = candidates.scores.data();
  std::fill_n(highest, n_classes, -std::numeric_limits<float>::infinity());
  for (std::size_t first = 0; first < n_bits; first += n_classes)
    for (std::size_t i = 0; i < std::min(n_classes, n_bits - first); ++i)
      highest[i] = row[first + i] > highest[i] ? row[first + i] : highest[i];
  std::uint64_t* order = candidates.order.data();
  for (std::size_t i = 0; i < n_classes; ++i) order[i] = score_key(highest[i], static_cast<std::uint32_t>(i));
  std::nth_element(order, order + (n_active - 1), order + n_classes, std::greater<>());
  return score_of_key(order[n_active - 1]);
}

template <class Isa>
void row_winners(const float* row, std::size_t n_bits, std::size_t n_active, const Guess (&guesses)[n_guesses],
                 BitCandidates& candidates, std::uint16_t* winners) {
  const Moments moments = Isa::moments(row, n_bits);
  for (const Guess& guess : guesses) {
    float threshold = moments.mean + guess.z * moments.deviation;
    candidates.n = Isa::above(row, n_bits, threshold, candidates.bits.data());
    if (candidates.n < n_active) continue;
    candidates.take_scores(row);
    if (raise<Isa>(candidates, n_active, guess.step * moments.deviation, threshold)) {
      Isa::keep(candidates.scores.data(), candidates.n, threshold, candidates.bits.data());
      std::copy_n(candidates.bits.data(), n_active, winners);
    } else {
      keep_by_key(candidates, row, n_active, winners);
    }
    return;
  }
  candidates.n = 0;
  const std::size_t n_classes = (4 * n_active + 15) / 16 * 16;
  if (n_classes < n_bits)
    candidates.n =
        Isa::above(row, n_bits, safe_threshold(candidates, row, n_bits, n_active, n_classes), candidates.bits.data());
  if (candidates.n < n_active) {  // many NaN, or nearly all bits win
    for (std::size_t bit = 0; bit < n_bits; ++bit) candidates.bits[bit] = static_cast<std::uint16_t>(bit);
    candidates.n = n_bits;
  }
  keep_by_key(candidates, row, n_active, winners);
}

template <class Isa>
void winners_by_guess(const float* scores, std::size_t n_rows, std::size_t n_bits, std::size_t n_active,
                      std::uint16_t* winners) {
  // The last guess suits scores with light tails, for instance similarities to the centroids of a coarse quantizer.
  const Guess guesses[n_guesses] = {{1.15 * n_active + 6.0, n_active, n_bits},
                                    {2.5 * n_active + 12.0, n_active, n_bits},
                                    {6.0 * n_active + 40.0, n_active, n_bits}};
  BitCandidates candidates(n_bits);
  for (std::size_t row = 0; row < n_rows; ++row)
    row_winners<Isa>(scores + row * n_bits, n_bits, n_active, guesses, candidates, winners + row * n_active);
}

}  // namespace
}  // namespace posh
