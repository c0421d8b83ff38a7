// Every kernel of the search in blocks against the scalar one on random cases, for a build with sanitizers: see
// search_driver.cpp. Each block has an allocation of its own, so that one byte too far is noticed.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "blocks.h"
#include "kernels.h"

namespace {

std::mt19937_64 random_bits(0);

std::size_t between(std::size_t low, std::size_t high) { return low + random_bits() % (high - low + 1); }

template <class T>
T one_of(std::initializer_list<T> values) {
  return values.begin()[between(0, values.size() - 1)];
}

// Numbers of any scale up to squares that do not overflow; some are equal, some are zero.
std::vector<float> random_floats(std::size_t n, float scale) {
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  const bool is_coarse = between(0, 3) == 0;
  for (float& value : values) {
    value = normal(random_bits);
    value = (is_coarse ? std::nearbyint(value) : value) * scale;
  }
  return values;
}

struct Case {
  std::size_t n_docs, n_slots, n_features, n_lists, n_queries;
  posh::BlockShape shape;
  float scale;
  bool is_distance;
  std::vector<float> centroids, routing, bias, weights, signs, reduction, vectors, queries, coded_centroids, projected_centroids;
  std::vector<std::uint16_t> halves;
  std::vector<std::int32_t> lists;
  std::vector<std::uint32_t> slots;
  posh::Projection projection;
  posh::Reduction reduced;
  std::optional<posh::Router> reducer;

  Case() {
    n_docs = between(0, 9) ? between(0, 400) : between(2000, 5000);
    n_features = n_docs > 1000 ? between(1, 20) : between(1, 300);
    n_lists = between(0, 2) ? between(1, 9) : between(1, 70);
    n_queries = n_docs < 1000 && !between(0, 5) ? between(30, 70) : between(0, 5);
    scale = one_of({1.0f, 1.0f, 1e-3f, 1e16f, 1e-20f, 1e-44f});
    is_distance = between(0, 1);
    const std::size_t n_columns = between(0, 1) ? n_features : between(1, 70);
    if (n_columns != n_features) reduction = random_floats(n_columns * n_features, 1.0f);
    reduced = {reduction.data(), n_columns, n_features};
    if (!reduction.empty()) reducer.emplace(reduction.data(), std::vector<float>(n_columns).data(), n_columns, n_features);
    const std::size_t n_bits = 32 * between(1, 10);
    shape = {n_bits, between(1, n_bits), n_columns};
    centroids = random_floats(n_lists * n_features, scale);
    routing = random_floats(n_lists * n_columns, scale);
    bias = random_floats(n_lists, scale);
    projection = {n_bits, n_columns, nullptr, nullptr, 0};
    if (between(0, 1)) {
      weights = random_floats(n_bits * n_columns, 1.0f);
      projection.weights = weights.data();
    } else {
      projection.size = n_bits & (~n_bits + 1);
      for (std::size_t i = 0; i < n_bits / projection.size * n_columns; ++i) signs.push_back(between(0, 1) ? 1.0f : -1.0f);
      projection.signs = signs.data();
    }
    vectors = random_floats(n_docs * n_features, scale);
    for (std::size_t i = 0; i < n_docs * n_features; ++i) halves.push_back(static_cast<std::uint16_t>(random_bits() & 0xBBFF));
    n_slots = n_docs;
    for (std::size_t i = 0; i < n_docs; ++i) {
      lists.push_back(static_cast<std::int32_t>(between(0, n_lists - 1) * between(0, 1)));  // the first list is long
      slots.push_back(static_cast<std::uint32_t>(n_docs - 1 - i));
    }
    queries = random_floats(n_queries * n_features, scale);
    coded_centroids = random_floats(n_lists * n_columns, scale);
    projected_centroids = random_floats(n_lists * n_bits, scale);
  }

  posh::Residuals residuals(std::size_t begin, std::size_t end) const {
    return {vectors.data() + begin * n_features, lists.data() + begin, slots.data() + begin, end - begin,
            n_features, centroids.data(), n_lists, reduction_or_null(), is_distance};
  }

  const posh::Reduction* reduction_or_null() const { return reduction.empty() ? nullptr : &reduced; }
};

template <class T>
std::shared_ptr<const T> copied(const T* from, std::size_t n) {
  T* copy = new T[n];
  std::copy_n(from, n, copy);
  return {copy, std::default_delete<T[]>()};
}

using Lists = std::shared_ptr<const posh::BlockLists>;

Lists separate(const posh::BlockLists& lists) {
  auto result = std::make_shared<posh::BlockLists>(lists);
  for (posh::Block& block : result->blocks) {
    block.memory = copied(block.memory.get(), lists.shape.bytes(block.n_docs));
    block.live = copied(block.live.get(), 4 * block.n_groups);
  }
  return result;
}

Lists random_lists(const Case& c, const std::vector<std::size_t>& ends, const std::vector<std::uint8_t>& removed,
                   posh::EncodeFn encode) {
  auto empty = std::make_shared<posh::BlockLists>();
  empty->shape = c.shape;
  empty->first.assign(c.n_lists + 1, 0);
  Lists lists = empty;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    lists = separate(*posh::with_documents(*lists, c.projection, c.residuals(begin, end), encode, 2, nullptr));
    lists = posh::without_documents(*lists, removed.data(), removed.size());
    begin = end;
  }
  return lists;
}

struct Arrays {
  std::vector<std::uint8_t> memory;
  std::vector<std::int64_t> table;
  std::vector<float> lengths;
  std::vector<std::uint64_t> live;
  bool operator==(const Arrays& other) const {
    return memory == other.memory && table == other.table && lengths == other.lengths && live == other.live;
  }
};

Arrays arrays_of(const posh::BlockLists& lists) {
  const posh::ArraySizes sizes = posh::array_sizes(lists);
  Arrays arrays{std::vector<std::uint8_t>(sizes.n_bytes), std::vector<std::int64_t>(3 * sizes.n_blocks),
                std::vector<float>(3 * posh::max_groups * sizes.n_blocks), std::vector<std::uint64_t>(sizes.n_words)};
  posh::copy_to_arrays(lists, arrays.memory.data(), arrays.table.data(), arrays.lengths.data(), arrays.live.data());
  return arrays;
}

Lists opened(const Case& c, const Arrays& arrays) {
  const posh::BlockArrays from{copied(arrays.memory.data(), arrays.memory.size()),
                               arrays.table.data(),
                               arrays.lengths.data(),
                               copied(arrays.live.data(), arrays.live.size()),
                               arrays.memory.size(),
                               arrays.lengths.size() / (3 * posh::max_groups),
                               arrays.live.size()};
  return posh::lists_of_arrays(c.shape, c.n_lists, from);
}

// A table with a few wrong numbers is refused, or what it says can be searched.
void change_some(Arrays& arrays) {
  for (std::size_t i = between(0, 3); i > 0 && !arrays.table.empty(); --i) {
    std::int64_t& number = arrays.table[between(0, arrays.table.size() - 1)];
    number = one_of<std::int64_t>({number + 64, number - 64, number + 1, 0, -1, 2048, std::int64_t{1} << 62});
  }
}

posh::BlockSearch random_search(const Case& c, const posh::Router& router, const std::vector<std::uint8_t>& allowed) {
  posh::BlockSearch s{};
  s.router = &router;
  s.projection = &c.projection;
  s.queries = c.queries.data();
  s.n_queries = c.n_queries;
  s.k = between(0, 1) ? between(1, 10) : between(1, 400);
  s.n_probe = between(0, 1) * between(0, c.n_lists);
  s.reach = {one_of({1u, 6u, 37u}), one_of({0.0f, 1e-3f, 0.1f, 3.0f}), one_of({0.0f, 1.0f, 30.0f}) * c.scale};
  const std::size_t most = std::min<std::size_t>(c.shape.n_bits / 16, 15);
  s.n_plus = 16 * between(0, most);
  s.n_minus = 16 * between(s.n_plus == 0, most);
  s.n_scanned = between(std::max({s.n_plus, s.n_minus}), c.shape.n_bits);
  static const std::vector<std::int32_t> thresholds{0, 1, 4, 8, 16, 24, 32, 48};
  s.thresholds = thresholds.data();
  s.n_thresholds = between(2, thresholds.size());
  s.threshold_scale = one_of({0.0f, 0.1f, 1.0f, -1.0f});
  s.half_margin = one_of({0.0f, 1.5f, 4.0f});
  s.has_first = between(0, 1);
  s.first_intercept = one_of({0.0f, 1.0f, 1e30f}) * c.scale;
  s.first_slope = one_of({0.0f, 0.5f});
  s.n_keep = s.k + one_of<std::size_t>({0, 4, 50});
  s.stored = one_of({posh::Stored::float32, posh::Stored::float16, posh::Stored::residuals});
  if (s.stored == posh::Stored::residuals && c.reduction_or_null()) s.stored = posh::Stored::float32;
  s.vectors = s.stored == posh::Stored::float32   ? static_cast<const void*>(c.vectors.data())
              : s.stored == posh::Stored::float16 ? c.halves.data()
                                                  : nullptr;
  s.reducer = c.reducer ? &*c.reducer : nullptr;
  s.coded_centroids = c.coded_centroids.data();
  s.projected_centroids = c.projected_centroids.data();
  s.centroids = c.centroids.data();
  s.n_slots = c.n_slots;
  s.n_features = c.n_features;
  s.is_distance = c.is_distance;
  s.allowed = between(0, 1) ? allowed.data() : nullptr;
  s.min_shared = one_of({0.0f, 1.0f, 1e9f});
  return s;
}

struct Results {
  std::vector<std::int64_t> ids;
  std::vector<float> scores;
  bool operator==(const Results& other) const {  // bit for bit
    return ids == other.ids && scores.size() == other.scores.size() &&
           (scores.empty() || !std::memcmp(scores.data(), other.scores.data(), scores.size() * sizeof(float)));
  }
};

Results results_of(posh::BlockSearch search, std::size_t n_threads, posh::SearchBlocksFn run) {
  search.n_threads = n_threads;
  const std::size_t n = search.n_queries * search.k;
  Results results{std::vector<std::int64_t>(n), std::vector<float>(n)};
  try {
    run(search, results.ids.data(), results.scores.data());
  } catch (const std::out_of_range&) {  // slots of a table that lies
    return {};
  }
  return results;
}

Results samples_of(const posh::BlockSearch& search, posh::SampleCountsFn sample) {
  constexpr std::size_t n_groups = 3;
  Results results{{}, std::vector<float>(2 * search.n_queries * n_groups)};
  if (search.lists->blocks.empty()) return results;
  sample(search, n_groups, 1, results.scores.data(), results.scores.data() + search.n_queries * n_groups);
  for (float& value : results.scores) value = std::isnan(value) ? 1e30f : value;  // any NaN equals any other
  return results;
}

bool searches_agree(posh::BlockSearch& search, const posh::BlockLists& lists) {
  search.lists = &lists;
  search.n_threads = 1;
  const Results expected = results_of(search, 1, posh::kernels[0].search_blocks);
  const Results samples = samples_of(search, posh::kernels[0].sample_counts);
  for (std::size_t i = 0; i < posh::n_kernels; ++i) {
    const posh::Kernels& kernel = posh::kernels[i];
    if (!kernel.supported()) continue;
    for (const std::size_t n_threads : {1, 3})
      if (!(results_of(search, n_threads, kernel.search_blocks) == expected)) {
        std::printf("%s differs from scalar on %zu threads\n", kernel.name, n_threads);
        return false;
      }
    if (samples_of(search, kernel.sample_counts) == samples) continue;
    std::printf("samples of %s differ from scalar\n", kernel.name);
    return false;
  }
  return true;
}

bool nearest_agree(const Case& c, const posh::Router& router) {
  std::vector<std::int32_t> expected(c.n_queries), lists(c.n_queries);
  const std::vector<float> vectors = random_floats(c.n_queries * c.shape.n_columns, c.scale);
  posh::kernels[0].nearest_lists({&router, vectors.data(), c.n_queries, 1, nullptr}, expected.data());
  for (std::size_t i = 0; i < posh::n_kernels; ++i) {
    if (!posh::kernels[i].supported()) continue;
    posh::kernels[i].nearest_lists({&router, vectors.data(), c.n_queries, 2, nullptr}, lists.data());
    if (lists != expected) return std::printf("nearest lists of %s differ\n", posh::kernels[i].name), false;
  }
  return true;
}

bool random_case_agrees() {
  const Case c;
  const posh::Router router(c.routing.data(), c.bias.data(), c.n_lists, c.shape.n_columns);
  std::vector<std::size_t> ends{between(0, c.n_docs), c.n_docs};
  if (between(0, 1)) ends.insert(ends.begin(), between(0, ends[0]));
  std::vector<std::uint8_t> removed(c.n_slots), allowed(c.n_slots);
  for (std::uint8_t& flag : removed) flag = between(0, 9) == 0;
  for (std::uint8_t& flag : allowed) flag = between(0, 2) == 0;

  const Lists lists = random_lists(c, ends, removed, posh::kernels[0].encode_docs);
  Arrays arrays = arrays_of(*lists);
  for (std::size_t i = 0; i < posh::n_kernels; ++i)
    if (posh::kernels[i].supported() &&
        !(arrays_of(*random_lists(c, ends, removed, posh::kernels[i].encode_docs)) == arrays))
      return std::printf("blocks of %s differ\n", posh::kernels[i].name), false;
  posh::BlockSearch search = random_search(c, router, allowed);
  if (!nearest_agree(c, router) || !searches_agree(search, *lists)) return false;
  const Lists same = opened(c, arrays);
  if (!same || !(arrays_of(*same) == arrays)) return std::printf("arrays differ\n"), false;
  change_some(arrays);
  const Lists changed = opened(c, arrays);
  return !changed || searches_agree(search, *changed);
}

// The newest version of an index: one thread replaces it while others search it.
class Newest {
 public:
  void set(std::size_t number, Lists lists) {
    std::lock_guard<std::mutex> lock(mutex_);
    number_ = number;
    lists_ = std::move(lists);
  }
  std::pair<std::size_t, Lists> get() {
    std::lock_guard<std::mutex> lock(mutex_);
    return {number_, lists_};
  }

 private:
  std::mutex mutex_;
  std::size_t number_ = 0;
  Lists lists_;
};

const posh::Kernels& fastest_kernel() {
  std::size_t best = 0;
  for (std::size_t i = 0; i < posh::n_kernels; ++i)
    if (posh::kernels[i].supported()) best = i;
  return posh::kernels[best];
}

// Threads search the newest version of an index, each with helpers of its own, while another adds and removes documents.
// Every search finds what the version that it took holds.
bool concurrent_searches_agree() {
  const Case c;
  const posh::Router router(c.routing.data(), c.bias.data(), c.n_lists, c.shape.n_columns);
  const std::vector<std::size_t> ends{0, c.n_docs / 3, c.n_docs / 2, c.n_docs};
  const std::vector<std::uint8_t> none(c.n_slots), allowed(c.n_slots, 1);
  std::vector<std::uint8_t> removed(c.n_slots);
  for (std::uint8_t& flag : removed) flag = between(0, 9) == 0;
  posh::BlockSearch search = random_search(c, router, allowed);
  const posh::Kernels& kernel = fastest_kernel();

  std::vector<Results> expected;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const Lists lists = random_lists(c, {ends.begin(), ends.begin() + i + 1}, removed, posh::kernels[0].encode_docs);
    search.lists = lists.get();
    expected.push_back(results_of(search, 1, posh::kernels[0].search_blocks));
  }
  Newest newest;
  newest.set(0, random_lists(c, {0}, none, kernel.encode_docs));
  std::atomic<bool> agree{true};
  const auto read = [&](posh::BlockSearch own) {
    for (std::size_t number = 0; number + 1 < ends.size();) {
      Lists lists;
      std::tie(number, lists) = newest.get();
      own.lists = lists.get();
      if (!(results_of(own, 3, kernel.search_blocks) == expected[number])) agree = false;
    }
  };
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) readers.emplace_back(read, search);
  for (std::size_t i = 1; i < ends.size(); ++i) {
    const Lists lists = newest.get().second;
    const posh::Residuals added = c.residuals(ends[i - 1], ends[i]);
    const Lists more = posh::with_documents(*lists, c.projection, added, kernel.encode_docs, 3, nullptr);
    newest.set(i, posh::without_documents(*more, removed.data(), removed.size()));
  }
  for (std::thread& reader : readers) reader.join();
  if (!agree) std::printf("%s finds something else on several threads\n", kernel.name);
  return agree;
}

}  // namespace

// The number of cases may be given.
int main(int n_arguments, char** arguments) {
  const int n_cases = n_arguments > 1 ? std::atoi(arguments[1]) : 100, n_concurrent = n_cases / 4;
  for (int i = 0; i < n_cases; ++i)
    if (!random_case_agrees()) return std::printf("case %d\n", i), 1;
  for (int i = 0; i < n_concurrent; ++i)
    if (!concurrent_searches_agree()) return std::printf("concurrent case %d\n", i), 1;
  std::printf("%d cases of blocks and %d concurrent ones, all kernels agree\n", n_cases, n_concurrent);
}
