// Compares every kernel of the search in blocks with the scalar one on random cases, for a build with sanitizers: see
// search_driver.cpp.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "blocks.h"
#include "kernels.h"
#include "random_blocks.h"

namespace {

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

Lists open_lists(const Case& c, const Arrays& arrays) {
  const posh::BlockArrays from{copy_array(arrays.memory.data(), arrays.memory.size()),
                               arrays.table.data(),
                               arrays.lengths.data(),
                               copy_array(arrays.live.data(), arrays.live.size()),
                               arrays.memory.size(),
                               arrays.lengths.size() / (3 * posh::max_groups),
                               arrays.live.size()};
  return posh::open_arrays(c.shape, c.n_lists, from);
}

// Changes a few numbers of the table. The table is then rejected, or it can still be searched safely.
void change_some(Arrays& arrays) {
  for (std::size_t i = between(0, 3); i > 0 && !arrays.table.empty(); --i) {
    std::int64_t& number = arrays.table[between(0, arrays.table.size() - 1)];
    number = one_of<std::int64_t>({number + 64, number - 64, number + 1, 0, -1, 2048, std::int64_t{1} << 62});
  }
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
  } catch (const std::out_of_range&) {  // slots of a changed table
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

std::vector<std::vector<std::uint64_t>> radius_of(posh::BlockSearch search, std::size_t n_threads,
                                                  posh::SearchRadiusFn run) {
  search.n_threads = n_threads;
  std::vector<std::vector<std::uint64_t>> found(search.n_queries);
  try {
    run(search, found.data());
  } catch (const std::out_of_range&) {
    return {};
  }
  return found;
}

// Compares range searches whose bounds are scores of the results of a search.
bool radius_searches_agree(posh::BlockSearch search, const Results& results) {
  std::vector<float> bounds(search.n_queries);
  for (std::size_t q = 0; q < search.n_queries && !results.scores.empty(); ++q)
    bounds[q] = results.scores[q * search.k + search.k / 2];
  search.bounds = bounds.data();
  search.k = search.n_keep = 0;
  search.has_first = false;
  search.margin = 0.1f;
  const auto expected = radius_of(search, 1, posh::kernels[0].search_radius);
  for (std::size_t i = 0; i < posh::n_kernels; ++i)
    for (const std::size_t n_threads : {1, 3})
      if (posh::kernels[i].supported() && radius_of(search, n_threads, posh::kernels[i].search_radius) != expected) {
        std::printf("range search of %s differs from scalar on %zu threads\n", posh::kernels[i].name, n_threads);
        return false;
      }
  return true;
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
  return radius_searches_agree(search, expected);
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
  const Lists same = open_lists(c, arrays);
  if (!same || !(arrays_of(*same) == arrays)) return std::printf("arrays differ\n"), false;
  change_some(arrays);
  const Lists changed = open_lists(c, arrays);
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

// Threads search the newest version of an index, each with helpers of its own, while another adds and removes
// documents. Every search returns the results of the version that it took.
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
  if (!agree) std::printf("%s differs on several threads\n", kernel.name);
  return agree;
}

}  // namespace

// Takes the number of cases as an optional argument.
int main(int n_arguments, char** arguments) {
  const int n_cases = n_arguments > 1 ? std::atoi(arguments[1]) : 100, n_concurrent = n_cases / 4;
  for (int i = 0; i < n_cases; ++i)
    if (!random_case_agrees()) return std::printf("case %d\n", i), 1;
  for (int i = 0; i < n_concurrent; ++i)
    if (!concurrent_searches_agree()) return std::printf("concurrent case %d\n", i), 1;
  std::printf("%d cases of blocks and %d concurrent ones, all kernels agree\n", n_cases, n_concurrent);
}
