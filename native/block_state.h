// What a search in blocks works with: queries, what they have found, and memory that later searches use again. Include
// it like block_search.h.
#pragma once

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

constexpr std::uint32_t doc_bits = 11;  // of a position in a block
static_assert(max_block_docs == 1u << doc_bits);

constexpr std::size_t spare = 32;  // elements that Isa::expand may write past its end, and the sieve may read

constexpr float lowest = -std::numeric_limits<float>::infinity();

// One block, as one query scans it.
struct Scan {
  const std::uint8_t* planes;
  const std::uint32_t* rows;       // offsets of the rows of the planes: n_plus, then n_minus
  std::size_t n_plus, n_minus;
  const std::int32_t* thresholds;  // for each group; a document passes if plus bits + clear minus bits reach it
  std::size_t n_groups;
  const std::uint8_t* next_planes; // the scan of group g prefetches line g of these rows, for g < n_next_lines
  const std::uint32_t* next_rows;
  std::size_t n_next_lines;
};

// Queries to be routed: query i is units[i] * numbers[i * stride + …], with zeros up to a multiple of 4 columns.
struct Routed {
  const std::int8_t* numbers;
  std::size_t stride;
  const float* units;
  std::size_t n;
};

// What a query is for the residuals of a list. For products it is the same in all lists, but for the score.
struct View {
  const std::int8_t* numbers;   // what is compared with residuals is unit * numbers
  const std::uint32_t* planes;  // n_plus bit numbers, then n_minus
  float unit;
  float half_offset;            // 16 * (sum over high halves) + half_offset: estimated product plus a margin
  std::int32_t sum;             // of the numbers, times 128
  float reach;                  // sum of the projections at the planes, divided by the square of the length
  float list_score;
};

struct alignas(64) Query {
  View view;           // of the list that is being visited
  float limit, entry;  // the k-th best score, the n_keep-th best: lower ones are of no use
  float scan_limit;    // the limit before the last block was scored: blocks are scanned one block ahead
  std::uint32_t n_kept, index;
};

// The lists that a query visits, in this order.
struct Probes {
  const std::uint16_t* lists;  // (n) ascending
  const float* scores;         // (n)
  std::size_t n;
};

// A document that is kept for the last step. A higher key is better.
struct Kept {
  std::uint64_t key;
  std::uint32_t block, doc;
};

struct Visit {
  std::uint32_t query;
  float list_score;
};

// A block that a single query visits, and the place of its list among the visited ones.
struct Stop {
  std::uint32_t block, list;
};

struct ListScore {
  std::uint32_t list;
  float score;
};

struct Survivor {
  std::uint32_t pair;
  std::int32_t high_sum;
};

// Grows an array to n elements. What is there already stays, so that memory is not cleared again and again.
template <class T>
T* reserve(std::vector<T>& array, std::size_t n) {
  if (array.size() < n) array.resize(n);
  return array.data();
}

// A query in one list: its view, and the offsets of its rows in blocks of each width.
struct Near {
  View view;
  std::vector<std::int8_t> numbers;
  std::vector<std::uint32_t> planes, rows_by_width[max_groups + 1];
  bool has_rows[max_groups + 1];
};
constexpr std::size_t n_near = 3;  // the list of the block that is scanned, of the one before, and of the one after it

// The memory of one search on one thread. New memory costs more than a small search itself, since the system clears it.
// So each thread keeps its workspace, unless it has become large.
struct Workspace {
  // Of the queries, by their position in the batch.
  std::vector<Query> queries;
  std::vector<std::int8_t> numbers;
  std::vector<std::uint32_t> planes;  // (n, n_planes) bit numbers
  std::vector<Kept> kept;             // (n, n_keep), best first
  std::vector<std::uint16_t> probes;  // of all queries, those of a query by ascending number
  std::vector<float> list_scores;     // of these lists
  std::vector<std::size_t> first_probe;  // (n + 1) of each query, in `probes`
  std::vector<float> coded, projected;             // for distances: (n, n_columns), (n, n_bits)

  // Of a tile of queries, or of one query in a list.
  std::vector<float> routed, units, reduced, difference, differences;
  std::vector<std::int8_t> wide_numbers;  // of queries before their reduction
  std::vector<std::uint16_t> chosen;

  // Of a block.
  std::vector<std::uint64_t> masks;
  std::vector<std::uint32_t> pairs, waiting_docs, rows;
  std::vector<Survivor> survivors;
  std::size_t n_survivors = 0;

  // Of a schedule.
  std::vector<Visit> visits;
  std::vector<std::size_t> visit_starts;
  std::vector<Stop> stops;
  std::vector<ListScore> visited;
  std::vector<std::uint16_t> wider_probes;  // of a query that is done again
  std::vector<float> wider_scores;
  Near near[n_near];
  std::vector<std::vector<std::uint64_t>> allowed;  // by block, if there is a filter

  // Of the last step.
  std::vector<std::uint64_t> exact;
  std::vector<float> decoded;

  std::size_t bytes() const {
    std::size_t sum = bytes_of(queries) + bytes_of(numbers) + bytes_of(planes) + bytes_of(kept) + bytes_of(probes) +
                      bytes_of(list_scores) + bytes_of(first_probe) + bytes_of(coded) +
                      bytes_of(projected) + bytes_of(routed) + bytes_of(masks) + bytes_of(pairs) +
                      bytes_of(waiting_docs) + bytes_of(survivors) + bytes_of(visits) + bytes_of(stops) +
                      bytes_of(exact) + bytes_of(decoded) + bytes_of(allowed);
    for (const std::vector<std::uint64_t>& words : allowed) sum += bytes_of(words);
    return sum;
  }

 private:
  template <class T>
  static std::size_t bytes_of(const std::vector<T>& array) {
    return array.capacity() * sizeof(T);
  }
};

}  // namespace
}  // namespace posh
