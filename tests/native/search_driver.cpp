// Compares every kernel with the scalar one on random searches, for a build with sanitizers:
//
//   cmake -S . -B build/sanitize -DPOSH_SANITIZE=address,undefined && cmake --build build/sanitize
//   build/sanitize/search_driver
//
// All arrays are exactly as long as the contracts in kernels.h require, so that an access one word past the end is
// noticed.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "kernels.h"

namespace {

std::mt19937_64 random_bits(0);

std::size_t between(std::size_t low, std::size_t high) { return low + random_bits() % (high - low + 1); }

std::vector<std::uint16_t> random_codes(std::size_t n, std::size_t n_bits, std::size_t n_active) {
  std::vector<std::uint16_t> bits(n_bits), codes;
  std::iota(bits.begin(), bits.end(), 0);
  for (std::size_t i = 0; i < n; ++i) {
    std::shuffle(bits.begin(), bits.end(), random_bits);
    std::sort(bits.begin(), bits.begin() + n_active);
    codes.insert(codes.end(), bits.begin(), bits.begin() + n_active);
  }
  return codes;
}

struct Documents {
  std::vector<std::uint64_t> planes, live, filter;
  std::vector<std::int64_t> slots;
  posh::Segment segment;
};

Documents random_documents(std::size_t n_bits, std::size_t n_active, std::int64_t first_slot) {
  const std::size_t n = between(0, 3) ? between(0, 600) : between(2000, 5000), stride = (n + 255) / 256 * 4;
  Documents documents;
  documents.planes.resize(n_bits * stride);
  posh::pack(random_codes(n, n_bits, n_active).data(), n, n_active, 0, stride, documents.planes.data());
  for (std::size_t i = 0; i < (n + 63) / 64; ++i) {
    documents.live.push_back(random_bits() | random_bits());
    documents.filter.push_back(between(0, 3) ? random_bits() : 0);
  }
  documents.segment = {documents.planes.data(),
                       stride,
                       n,
                       first_slot,
                       between(0, 1) ? documents.live.data() : nullptr,
                       between(0, 1) ? documents.filter.data() : nullptr};
  return documents;
}

struct Results {
  std::vector<std::int64_t> ids;
  std::vector<std::int32_t> scores;
  bool operator==(const Results& other) const { return ids == other.ids && scores == other.scores; }
};

template <class AnySearch, class Run>
Results results_of(AnySearch search, std::size_t n_threads, Run run) {
  search.n_threads = n_threads;
  const std::size_t n = search.n_queries * search.k;
  Results results{std::vector<std::int64_t>(n), std::vector<std::int32_t>(n)};
  run(search, results.ids.data(), results.scores.data());
  return results;
}

template <class AnySearch, class Verb>
bool kernels_agree(const AnySearch& search, Verb posh::Kernels::* verb) {
  const Results expected = results_of(search, 1, posh::kernels[0].*verb);
  for (std::size_t i = 0; i < posh::n_kernels; ++i)
    for (const std::size_t n_threads : {1, 2, 5})
      if (posh::kernels[i].supported() && !(results_of(search, n_threads, posh::kernels[i].*verb) == expected)) {
        std::printf("%s differs from scalar on %zu threads\n", posh::kernels[i].name, n_threads);
        return false;
      }
  return true;
}

// Several callers search the same documents concurrently, each with helpers of its own.
template <class AnySearch, class Verb>
bool callers_agree(const AnySearch& search, Verb posh::Kernels::* verb) {
  const Results expected = results_of(search, 1, posh::kernels[0].*verb);
  std::atomic<bool> agree{true};
  std::vector<std::thread> callers;
  for (std::size_t i = 0; i < posh::n_kernels; ++i)
    if (posh::kernels[i].supported())
      callers.emplace_back([&, i] {
        if (!(results_of(search, 3, posh::kernels[i].*verb) == expected)) agree = false;
      });
  for (std::thread& caller : callers) caller.join();
  if (!agree) std::printf("a kernel differs from scalar while others search\n");
  return agree;
}

const std::int64_t* slots_of(const std::vector<Documents>& all, const posh::Segment& segment) {
  const auto same = [&](const Documents& d) { return d.segment.first_slot == segment.first_slot; };
  return std::find_if(all.begin(), all.end(), same)->slots.data();
}

bool random_search_agrees() {
  const std::size_t n_bits = between(2, 300), n_active = between(1, n_bits), n_query_active = between(1, n_bits);
  std::vector<Documents> documents;
  std::vector<posh::Segment> segments;
  std::int64_t slot = 0;
  for (std::size_t i = between(0, 4); i > 0; --i) {
    documents.push_back(random_documents(n_bits, n_active, slot));
    for (std::size_t doc = 0; doc < documents.back().segment.n_docs; ++doc)
      documents.back().slots.push_back(static_cast<std::int64_t>(7 * doc + documents.size()));
    slot += static_cast<std::int64_t>(documents.back().segment.n_docs + between(1, 10));
  }
  for (const Documents& d : documents) segments.push_back(d.segment);
  std::shuffle(segments.begin(), segments.end(), random_bits);

  const std::size_t n_queries = between(0, 3) ? between(0, 3) : between(64, 130);
  const std::vector<std::uint16_t> queries = random_codes(n_queries, n_bits, n_query_active);
  std::vector<std::int64_t> offsets{0};
  std::vector<std::int32_t> visits;
  for (std::size_t q = 0; q < n_queries; ++q) {
    for (std::size_t i = 0; i < segments.size(); ++i)
      if (between(0, 1)) visits.push_back(static_cast<std::int32_t>(segments.size() - 1 - i));
    offsets.push_back(static_cast<std::int64_t>(visits.size()));
  }
  const posh::Search search{segments.data(),
                            segments.size(),
                            n_bits,
                            queries.data(),
                            n_queries,
                            n_query_active,
                            between(0, 1) ? between(1, 20) : between(1, 3000),
                            1,
                            nullptr};
  std::vector<const std::int64_t*> slots;
  for (const posh::Segment& segment : segments) slots.push_back(slots_of(documents, segment));
  const posh::ListSearch lists{search, slots.data(), offsets.data(), visits.data()};
  return kernels_agree(search, &posh::Kernels::overlap_topk) && kernels_agree(lists, &posh::Kernels::overlap_lists) &&
         callers_agree(search, &posh::Kernels::overlap_topk) && callers_agree(lists, &posh::Kernels::overlap_lists);
}

}  // namespace

// Takes the number of searches as an optional argument.
int main(int n_arguments, char** arguments) {
  const int n_searches = n_arguments > 1 ? std::atoi(arguments[1]) : 150;
  for (int i = 0; i < n_searches; ++i)
    if (!random_search_agrees()) return 1;
  std::printf("%d searches, all kernels agree\n", n_searches);
}
