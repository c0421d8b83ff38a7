// Builds and extends random graphs and searches them with every kernel, with records that are right and with random
// ones: results must agree, and the sanitizers must find nothing.
//   graph_driver [n_cases]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "graph.h"
#include "kernels.h"

namespace {

using Rng = std::mt19937;

std::vector<float> draw_floats(std::size_t n, Rng& rng) {
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(rng);
  return values;
}

template <class T>
std::vector<T> draw_integers(std::size_t n, std::int64_t low, std::int64_t high, Rng& rng) {
  std::uniform_int_distribution<std::int64_t> uniform(low, high);
  std::vector<T> values(n);
  for (T& value : values) value = static_cast<T>(uniform(rng));
  return values;
}

struct Results {
  std::vector<std::uint8_t> records;
  std::vector<std::int64_t> ids;
  std::vector<float> scores;
  bool operator==(const Results& other) const {
    return records == other.records && ids == other.ids &&
           !std::memcmp(scores.data(), other.scores.data(), scores.size() * sizeof(float));
  }
};

struct Case {
  explicit Case(Rng& rng)
      : shape{64u * (1 + rng() % 4), 1 + rng() % 2, 32u * (1 + rng() % 2)}, n(1 + rng() % 300), d(1 + rng() % 90),
        n_old(rng() % 2 ? 0 : rng() % n), n_new(rng() % 5), k(1 + rng() % 20), is_random(rng() % 3 == 0),
        vectors(draw_floats(n * shape.n_columns, rng)), lost(n, 0.25f), rows(draw_floats(shape.n_columns * d, rng)),
        mean(draw_floats(d, rng)), bias(draw_floats(shape.n_columns, rng)), stored(draw_floats((n + n_new) * d, rng)),
        queries(draw_floats(n_queries * d, rng)),
        candidates(draw_integers<std::int32_t>(n * 20, -1, static_cast<std::int64_t>(n) - 1, rng)),
        entries(draw_integers<std::uint32_t>(1 + rng() % 9, 0, static_cast<std::int64_t>(n) - 1, rng)), slots(n),
        live(draw_integers<std::uint8_t>(n + n_new, 0, 1, rng)),
        old(draw_integers<std::uint8_t>(n_old * shape.stride(), 0, 255, rng)),
        random(draw_integers<std::uint8_t>(is_random ? n * shape.stride() : 0, 0, 255, rng)) {
    for (std::size_t i = 0; i < n; ++i) slots[i] = static_cast<std::uint32_t>(i);
  }

  Results run(const posh::Kernels& kernel, std::size_t n_threads) const {
    Results results;
    results.records.assign(n * shape.stride(), 255);
    if (n_old) build(kernel, n_threads, 0, n_old, {0}, results.records.data());
    if (is_random) results.records.assign(old.begin(), old.end());
    results.records.resize(n * shape.stride(), 255);
    build(kernel, n_threads, n_old, n, entries, results.records.data());
    if (is_random) results.records = random;
    const std::vector<float> none(shape.n_columns), entry_bias(entries.size());
    const posh::Router transform(rows.data(), none.data(), shape.n_columns, d);
    std::vector<float> entry_vectors;
    for (const std::uint32_t entry : entries)
      entry_vectors.insert(entry_vectors.end(), &vectors[entry * shape.n_columns],
                           &vectors[entry * shape.n_columns] + shape.n_columns);
    const posh::Router router(entry_vectors.data(), entry_bias.data(), entries.size(), shape.n_columns);
    const posh::Graph graph{shape,
                            n,
                            d,
                            results.records.data(),
                            slots.data(),
                            {&transform, mean.data(), bias.data(), 0.0f},
                            &router,
                            entries.data(),
                            entries.size()};
    results.ids.resize(n_queries * k);
    results.scores.resize(n_queries * k);
    const posh::GraphSearch search{
        &graph,        queries.data(), n_queries, k,           1.2f, k + 3,   posh::Stored::float32,
        stored.data(), n + n_new,      true,      live.data(), n,    nullptr, nullptr,
        n_threads,     nullptr};
    kernel.search_graph(search, results.ids.data(), results.scores.data());
    return results;
  }

  // Builds a graph of the nodes below `end`, those below `begin` of which have records.
  void build(const posh::Kernels& kernel, std::size_t n_threads, std::size_t begin, std::size_t end,
             const std::vector<std::uint32_t>& from, std::uint8_t* records) const {
    const posh::GraphPlan plan{shape,        &vectors[begin * shape.n_columns],
                               &lost[begin], end,
                               begin,        &candidates[begin * 20],
                               20,           from.data(),
                               from.size(),  1.1f,
                               n_threads,    nullptr};
    kernel.build_graph(plan, records);
  }

  static constexpr std::size_t n_queries = 70;
  posh::GraphShape shape;
  std::size_t n, d, n_old, n_new, k;
  bool is_random;
  std::vector<float> vectors, lost, rows, mean, bias, stored, queries;
  std::vector<std::int32_t> candidates;
  std::vector<std::uint32_t> entries, slots;
  std::vector<std::uint8_t> live, old, random;
};

}  // namespace

int main(int argc, char** argv) {
  const int n_cases = argc > 1 ? std::atoi(argv[1]) : 100;
  for (int seed = 0; seed < n_cases; ++seed) {
    Rng rng(static_cast<unsigned>(seed));
    const Case random_case(rng);
    const Results expected = random_case.run(posh::kernels[0], 1);
    for (std::size_t i = 0; i < posh::n_kernels; ++i)
      if (posh::kernels[i].supported() && !(random_case.run(posh::kernels[i], 3) == expected)) {
        std::printf("graph_driver: case %d: %s differs from scalar\n", seed, posh::kernels[i].name);
        return 1;
      }
  }
  std::printf("graph_driver: %d cases agree\n", n_cases);
}
