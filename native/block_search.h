// The search in blocks, written once for every instruction set. Include it where blocks.h and the standard headers that
// it uses are included already: see avx2_begin.h.
//
// `Isa` supplies:
//   void route(const Router&, const Routed& queries, float* scores)
//     the routing scores of all lists for each query, n_groups() * 8 numbers for each
//   std::size_t largest(const float* scores, std::size_t n)
//     the first position of the highest score
//   void masks(const Scan&, std::uint64_t* masks)
//     for each group of a block 4 words: which of its documents reach the count
//   std::uint32_t* expand(const std::uint64_t* mask, std::uint32_t first, std::uint32_t* to)
//     writes first + i for each set bit i of 256; returns the end. May write 4 elements past it.
//   std::int32_t half_sum(const std::uint8_t* halves, const std::int8_t* numbers, std::size_t width)
//     the sum of half * number over all columns
//   unsigned above(const std::uint8_t* const (&halves)[4], const Query* const (&queries)[4], const float (&scales)[4], …)
//     the same for four documents, and which of them may be good enough
//   float product(const float* a, const float* b, std::size_t n), float distance(…)
//     the sum of a * b, of (a - b)²; the order of additions is that of eight_sums
//   void hadamard(float* values, std::size_t n)
//     the Walsh-Hadamard transform in place: hadamard_from(1, values, n)
// All integers and all floats that decide something are the same for every Isa.
#pragma once

namespace posh {
namespace {  // internal linkage: see avx2_begin.h

constexpr std::uint32_t doc_bits = 11;  // of a position in a block
static_assert(max_block_docs == 1u << doc_bits);

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

struct alignas(64) Query {
  const std::int8_t* numbers;  // the query is unit * numbers
  float unit;
  float half_offset;           // 16 * (sum over high halves) + half_offset: estimated product plus a margin
  std::int32_t sum;            // of the numbers, times 128
  float reach;                 // counts for a residual of length 1 and product 1, up to the gain
  float limit, entry;          // the k-th best score, the n_keep-th best: lower ones are of no use
  float list_score;            // of the list that is being visited
  std::uint32_t n_kept, index;
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

struct Survivor {
  std::uint32_t pair;
  std::int32_t high_sum;
};

constexpr std::size_t max_visits = 1024;  // queries that scan a block together: bounds their memory

constexpr float lowest = -std::numeric_limits<float>::infinity();

// The threshold for a group: documents that can reach `limit` have at least this count, up to the slack.
inline std::int32_t threshold_of(const BlockSearch& s, float middle, const Query& query, float length) {
  const float beyond = query.limit - query.list_score, counts = s.gain * query.reach;
  if (!(counts > 0.0f)) return 0;  // the count says nothing about the score
  const float expected = middle + beyond * counts / length - s.slack;
  const float most = static_cast<float>(s.n_plus + s.n_minus + 1);
  if (!(expected > 0.0f)) return 0;  // also NaN
  return static_cast<std::int32_t>(std::ceil(std::min(expected, most)));
}

template <class Isa>
class BlockSearcher {
 public:
  BlockSearcher(const BlockSearch& search, std::int64_t* ids, float* scores)
      : s(search), shape(search.lists->shape), n_planes(search.n_plus + search.n_minus), ids(ids), scores(scores) {
    const float active = static_cast<float>(shape.n_active) / static_cast<float>(shape.n_bits);
    middle = active * static_cast<float>(s.n_plus) + (1.0f - active) * static_cast<float>(s.n_minus);
    exact.resize(s.n_keep);
    if (s.allowed) allowed_of.resize(s.lists->blocks.size());
    decoded.resize(s.n_features);
    offsets.resize(max_groups + 1);
  }

  // Queries begin, …, end - 1. Returns false if cancelled.
  bool run(std::size_t begin, std::size_t end, Cancellation& cancellation) {
    prepare(begin, end);
    if (s.by_list) {
      if (!visit_lists(cancellation)) return false;
    }
    for (Query& query : queries) {
      if (cancellation.requested()) return false;
      if (!s.by_list) visit_probes(query, s.n_probe);
      repeat_if_needed(query);
      finish(query);
    }
    return true;
  }

  void sample_counts(std::size_t n_samples, std::uint64_t seed, float* expected, float* counts) {
    prepare(0, s.n_queries);
    for (const Query& query : queries)
      for (std::size_t i = 0; i < n_samples; ++i, ++expected, ++counts) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const std::uint32_t number = static_cast<std::uint32_t>((seed >> 33) % s.lists->blocks.size());
        const Block& block = s.lists->blocks[number];
        sample_count(query, block, (seed >> 20) % block.n_groups, *expected, *counts);
      }
  }

 private:
  void sample_count(const Query& query, const Block& block, std::size_t group, float& expected, float& count) {
    const std::uint64_t* live = block.live.get();
    float best = lowest;
    std::size_t best_doc = 0;
    for (std::size_t doc = group * group_docs; doc < std::min<std::size_t>(block.n_docs, (group + 1) * group_docs); ++doc) {
      if (!(live[doc / 64] >> doc % 64 & 1)) continue;
      const std::size_t at = doc * shape.half_bytes();
      const std::int32_t sum = 16 * Isa::half_sum(block.high(shape) + at, query.numbers, shape.width()) +
                               Isa::half_sum(block.low(shape) + at, query.numbers, shape.width());
      const float product = static_cast<float>(sum - query.sum) * (block.scale(shape)[doc] * query.unit);
      if (product > best) best = product, best_doc = doc;
    }
    expected = count = std::numeric_limits<float>::quiet_NaN();
    if (best == lowest) return;
    const std::uint32_t* bits = &planes[query.index * n_planes];
    std::size_t n = 0;
    for (std::size_t j = 0; j < n_planes; ++j) {
      const std::uint8_t byte = block.planes()[bits[j] * block.n_groups * group_bytes + best_doc / 8];
      n += (byte >> best_doc % 8 & 1) == (j < s.n_plus);
    }
    expected = best * query.reach / block.lengths[group];
    count = static_cast<float>(n) - middle;
  }

  // Preparation ---------------------------------------------------------------------------------------

  void prepare(std::size_t begin, std::size_t end) {
    const std::size_t n = end - begin, width = shape.width();
    first_query = begin;
    queries.resize(n);
    numbers.assign(n * width, 0);
    planes.resize(n * n_planes);
    kept.resize(n * s.n_keep);
    probes.resize(n * s.n_probe);
    routing_scores.resize(n * s.n_probe);
    list_scores.resize(n * s.n_probe);
    constexpr std::size_t tile = 32;
    for (std::size_t at = 0; at < n; at += tile) prepare_tile(at, std::min(n, at + tile));
  }

  void prepare_tile(std::size_t begin, std::size_t end) {
    const std::size_t n = end - begin, n_bits = shape.n_bits, n_scores = 8 * s.router->n_groups();
    projected.resize(n * n_bits);
    routed.resize(n * n_scores);
    units.resize(n);
    for (std::size_t i = begin; i < end; ++i) {
      quantise_query(i);
      project<Isa>(*s.projection, s.queries + (first_query + i) * shape.n_columns, &projected[(i - begin) * n_bits]);
      units[i - begin] = queries[i].unit;
    }
    Isa::route(*s.router, {&numbers[begin * shape.width()], shape.width(), units.data(), n}, routed.data());
    choose_planes(begin, n);
    for (std::size_t i = begin; i < end; ++i) choose_probes(i, &routed[(i - begin) * n_scores]);
  }

  void quantise_query(std::size_t i) {
    const float* values = s.queries + (first_query + i) * shape.n_columns;
    std::int8_t* to = &numbers[i * shape.width()];
    const float unit = quantise(values, shape.n_columns, to);
    float squares = 0;
    std::int32_t sum = 0;
    for (std::size_t j = 0; j < shape.n_columns; ++j) {
      squares += values[j] * values[j];
      sum += to[j];
    }
    Query& query = queries[i];
    query = {};
    query.numbers = to;
    query.unit = unit;
    query.sum = 128 * sum;
    constexpr float deviation = 4.6188f;  // of a low half from 7.5, which is what it counts as
    const float margin = s.half_margin * deviation * std::sqrt(squares) / unit;
    query.half_offset = 7.5f * static_cast<float>(sum) - static_cast<float>(query.sum) + margin;
    query.reach = squares;  // divided by choose_planes
    query.limit = query.entry = lowest;
    query.index = static_cast<std::uint32_t>(i);
  }

  void choose_planes(std::size_t begin, std::size_t n) {
    const std::size_t n_bits = s.n_scanned;
    for (std::size_t i = 1; i < n && n_bits < shape.n_bits; ++i)  // the rows of the scanned bits, one after the other
      std::copy_n(&projected[i * shape.n_bits], n_bits, &projected[i * n_bits]);
    chosen.resize(n * std::max({s.n_plus, s.n_minus, std::size_t{1}}));
    take_planes(begin, n, s.n_plus, 0);
    if (s.n_minus) {
      for (std::size_t j = 0; j < n * n_bits; ++j) projected[j] = -projected[j];
      take_planes(begin, n, s.n_minus, s.n_plus);
    }
    for (std::size_t i = 0; i < n; ++i) {
      Query& query = queries[begin + i];
      const float squares = query.reach;
      float sum = 0;
      const std::uint32_t* rows = &planes[(begin + i) * n_planes];
      const float* row = &projected[i * n_bits];
      const float sign = s.n_minus ? -1.0f : 1.0f;  // the projections are negated now
      for (std::size_t j = 0; j < s.n_plus; ++j) sum += sign * row[rows[j]];
      for (std::size_t j = s.n_plus; j < n_planes; ++j) sum += row[rows[j]];
      query.reach = squares > 0 ? sum / squares : 0.0f;
    }
  }

  void take_planes(std::size_t begin, std::size_t n, std::size_t n_chosen, std::size_t at) {
    if (!n_chosen) return;
    Isa::winners(projected.data(), n, s.n_scanned, n_chosen, chosen.data());
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n_chosen; ++j) planes[(begin + i) * n_planes + at + j] = chosen[i * n_chosen + j];
  }

  // Writes the best lists of query i by ascending number, and their scores.
  void choose_probes(std::size_t i, const float* routing) {
    const std::size_t n_lists = s.lists->n_lists();
    std::uint16_t* to = &probes[i * s.n_probe];
    if (s.n_probe < n_lists)
      Isa::winners(routing, 1, n_lists, s.n_probe, to);
    else
      for (std::size_t l = 0; l < n_lists; ++l) to[l] = static_cast<std::uint16_t>(l);
    float best = lowest;
    for (std::size_t j = 0; j < s.n_probe; ++j) {
      routing_scores[i * s.n_probe + j] = routing[to[j]];
      list_scores[i * s.n_probe + j] = score_of_list(queries[i], to[j]);
      best = std::max(best, list_scores[i * s.n_probe + j]);
    }
    if (s.has_first) {
      queries[i].limit = s.first_intercept + s.first_slope * best;
      queries[i].entry = queries[i].limit;
    }
  }

  // All queries, list by list -------------------------------------------------------------------------

  bool visit_lists(Cancellation& cancellation) {
    sort_visits();
    const std::size_t n_lists = s.lists->n_lists();
    for (std::size_t list = 0; list < n_lists; ++list) {
      const std::size_t n = visit_starts[list + 1] - visit_starts[list];
      if (!n) continue;
      if (cancellation.requested()) return false;
      const Visit* some = &visits[visit_starts[list]];
      for (std::size_t i = 0; i < n; ++i) queries[some[i].query].list_score = some[i].list_score;
      std::size_t next = list + 1;
      while (next < n_lists && visit_starts[next] == visit_starts[next + 1]) ++next;
      const std::uint32_t stop = s.lists->first[list + 1];
      for (std::uint32_t b = s.lists->first[list]; b < stop; ++b) {
        const std::uint32_t following = b + 1 < stop ? b + 1 : next < n_lists ? s.lists->first[next] : b;
        for (std::size_t at = 0; at < n; at += max_visits)
          visit_block(b, std::min<std::size_t>(following, s.lists->blocks.size() - 1), some + at,
                      std::min(max_visits, n - at));
      }
    }
    return true;
  }

  void sort_visits() {
    const std::size_t n_lists = s.lists->n_lists();
    visit_starts.assign(n_lists + 2, 0);
    for (const std::uint16_t list : probes) ++visit_starts[list + 2];
    for (std::size_t l = 0; l < n_lists; ++l) visit_starts[l + 2] += visit_starts[l + 1];
    visits.resize(probes.size());
    for (std::size_t j = 0; j < probes.size(); ++j)
      visits[visit_starts[probes[j] + 1]++] = {static_cast<std::uint32_t>(j / s.n_probe),
                                               list_scores[j]};
    visit_starts.pop_back();
  }

  // More precise than a routing score: it is a part of the scores of all documents of the list.
  float score_of_list(const Query& query, std::size_t list) const {
    const float* values = s.queries + (first_query + query.index) * shape.n_columns;
    return Isa::product(values, s.centroids + list * s.n_centred, s.n_centred) + s.list_bias[list];
  }

  void visit_block(std::uint32_t number, std::size_t next_number, const Visit* some, std::size_t n) {
    const Block& block = s.lists->blocks[number];
    const std::size_t n_groups = block.n_groups;
    const std::uint64_t* live = live_words(number);
    masks.resize(n * n_groups * 4);
    reserve(pairs, n * block.n_docs + 16);
    reserve(survivors, n * block.n_docs);
    // Each query prefetches a part of the next block: planes, and the high halves if enough queries share them.
    const Block& next = s.lists->blocks[next_number];
    const std::size_t wanted = n >= 16 ? next.low(shape) - next.planes() : next.high(shape) - next.planes();
    __builtin_prefetch(next.live.get());
    const std::size_t share = (n >= 4 ? wanted / 64 / n + 1 : 0) * 64;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t at = i * share; at < std::min(wanted, (i + 1) * share); at += 64)
        __builtin_prefetch(next.planes() + at, 0, 2);
      const Query& query = queries[some[i].query];
      if (i + 2 < n)
        for (std::size_t j = 0; j < n_planes; j += 16) __builtin_prefetch(&planes[some[i + 2].query * n_planes + j]);
      scan(block, query, rows_for(query, n_groups, own_rows), nullptr, nullptr, &masks[i * n_groups * 4]);
    }
    std::uint32_t* end = pairs.data();
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t g = 0; g < n_groups; ++g) {
        std::uint64_t* mask = &masks[(i * n_groups + g) * 4];
        for (std::size_t w = 0; w < 4; ++w) mask[w] &= live[4 * g + w];
        end = Isa::expand(mask, static_cast<std::uint32_t>(i << doc_bits | g * group_docs), end);
      }
    sift(block, static_cast<std::size_t>(end - pairs.data()), [&](std::uint32_t i) { return &queries[some[i].query]; });
    settle(number, [&](std::uint32_t i) -> Query& { return queries[some[i].query]; });
  }

  // One query, its best list first --------------------------------------------------------------------

  void visit_probes(Query& query, std::size_t n_probe) {
    order_probes(query, n_probe);
    visit_ordered(query);
  }

  // Blocks of the best lists, best list first.
  void order_probes(const Query& query, std::size_t n_probe) {
    order.clear();
    block_order.clear();
    const bool is_chosen = n_probe == s.n_probe;  // by choose_probes
    const std::size_t first = query.index * s.n_probe;
    if (is_chosen) {
      for (std::size_t j = 0; j < n_probe; ++j)  // by ascending list, so that of equal scores the lower list is first
        order.push_back(score_key(routing_scores[first + j], static_cast<std::uint32_t>(j)));
    } else {
      routed.resize(8 * s.router->n_groups());
      Isa::route(*s.router, {query.numbers, shape.width(), &query.unit, 1}, routed.data());
      for (std::size_t l = 0; l < s.lists->n_lists(); ++l)
        order.push_back(score_key(routed[l], static_cast<std::uint32_t>(l)));
    }
    std::sort(order.begin(), order.end(), std::greater<>());
    order.resize(n_probe);
    for (const std::uint64_t key : order) {
      const std::uint32_t at = position_of_key(key), list = is_chosen ? probes[first + at] : at;
      const float score = is_chosen ? list_scores[first + at] : score_of_list(query, list);
      for (std::uint32_t b = s.lists->first[list]; b < s.lists->first[list + 1]; ++b) block_order.push_back({b, score});
    }
  }

  // The candidates of a block are scored after the next block is scanned: their memory arrives meanwhile.
  void visit_ordered(Query& query) {
    if (block_order.empty()) return;
    offsets.assign(max_groups + 1, nullptr);
    const std::uint32_t* rows = rows_of_width(query, s.lists->blocks[block_order[0].query].n_groups);
    Waiting waiting;
    for (std::size_t at = 0; at < block_order.size(); ++at) {
      const std::uint32_t number = block_order[at].query;
      const Block& block = s.lists->blocks[number];
      const bool is_last = at + 1 == block_order.size();
      const Block& next = s.lists->blocks[is_last ? number : block_order[at + 1].query];
      const std::uint32_t* next_rows = rows_of_width(query, next.n_groups);
      __builtin_prefetch(next.live.get());
      query.list_score = block_order[at].list_score;
      masks.resize(max_groups * 4);
      scan(block, query, rows, is_last ? nullptr : &next, next_rows, masks.data());
      reserve(candidates, block.n_docs + 16);
      std::uint32_t* end = candidates.data();
      const std::uint64_t* live = live_words(number);
      for (std::size_t g = 0; g < block.n_groups; ++g) {
        for (std::size_t w = 0; w < 4; ++w) masks[4 * g + w] &= live[4 * g + w];
        end = Isa::expand(&masks[4 * g], static_cast<std::uint32_t>(g * group_docs), end);
      }
      const std::size_t n = static_cast<std::size_t>(end - candidates.data());
      const std::uint8_t* high = block.high(shape);
      const float* scale = block.scale(shape);
      for (std::size_t i = 0; i < n; ++i) {
        __builtin_prefetch(high + candidates[i] * shape.half_bytes());
        __builtin_prefetch(scale + candidates[i]);
      }
      score_waiting(query, waiting);
      std::swap(candidates, pairs);
      waiting = {number, n, query.list_score};
      rows = next_rows;
    }
    score_waiting(query, waiting);
  }

  struct Waiting {
    std::uint32_t block = 0;
    std::size_t n = 0;
    float list_score = 0;
  };

  void score_waiting(Query& query, const Waiting& waiting) {
    if (!waiting.n) return;
    const float current = query.list_score;
    query.list_score = waiting.list_score;
    reserve(pairs, waiting.n + 16);
    reserve(survivors, waiting.n);
    sift(s.lists->blocks[waiting.block], waiting.n, [&](std::uint32_t) { return &query; });
    settle(waiting.block, [&](std::uint32_t) -> Query& { return query; });
    query.list_score = current;
  }

  // A query is done again if its first limit was too high, or if its lists have too few documents.
  void repeat_if_needed(Query& query) {
    if (s.has_first && query.n_kept < s.k) start_again(query, s.n_probe);
    for (std::size_t n = s.n_probe; query.n_kept < s.k && n < s.lists->n_lists();) {
      n = std::min(4 * n, s.lists->n_lists());
      start_again(query, n);
    }
  }

  void start_again(Query& query, std::size_t n_probe) {
    query.n_kept = 0;
    query.limit = query.entry = lowest;
    visit_probes(query, n_probe);
  }

  // Scanning and scoring ------------------------------------------------------------------------------

  void scan(const Block& block, const Query& query, const std::uint32_t* rows, const Block* next,
            const std::uint32_t* next_rows, std::uint64_t* to) {
    std::int32_t thresholds[max_groups];
    for (std::size_t g = 0; g < block.n_groups; ++g)
      thresholds[g] = threshold_of(s, middle, query, block.lengths[g]);
    Isa::masks({block.planes(), rows, s.n_plus, s.n_minus, thresholds, block.n_groups, next ? next->planes() : nullptr,
                next_rows, next ? (next->n_groups + 1u) / 2 : 0},
               to);
  }

  const std::uint32_t* rows_for(const Query& query, std::size_t n_groups, std::vector<std::uint32_t>& to) {
    to.resize(n_planes);
    const std::uint32_t* from = &planes[query.index * n_planes];
    const std::uint32_t bytes = static_cast<std::uint32_t>(n_groups * group_bytes);
    for (std::size_t j = 0; j < n_planes; ++j) to[j] = from[j] * bytes;
    return to.data();
  }

  const std::uint32_t* rows_of_width(const Query& query, std::size_t n_groups) {
    if (!offsets[n_groups]) offsets[n_groups] = rows_for(query, n_groups, rows_by_width[n_groups]);
    return offsets[n_groups];
  }

  // Of the first n pairs (query << doc_bits | document), those whose high halves may be good enough become survivors.
  template <class QueryOf>
  void sift(const Block& block, std::size_t n, QueryOf query_of) {
    n_survivors = 0;
    if (!n) return;
    switch (shape.width()) {  // the compiler unrolls the loops over few columns
      case 64: return sift_columns<64>(block, n, query_of);
      case 128: return sift_columns<128>(block, n, query_of);
      case 192: return sift_columns<192>(block, n, query_of);
      case 256: return sift_columns<256>(block, n, query_of);
      default: return sift_columns<0>(block, n, query_of);
    }
  }

  template <std::size_t Width, class QueryOf>
  __attribute__((noinline)) void sift_columns(const Block& block, std::size_t n, QueryOf query_of) {
    const std::uint8_t *high = block.high(shape), *low = block.low(shape);
    const float* scale = block.scale(shape);
    const std::size_t width = Width ? Width : shape.width(), bytes = width / 2;
    constexpr std::uint32_t doc_mask = max_block_docs - 1;
    std::uint32_t* p = pairs.data();
    constexpr std::size_t ahead = 12;  // pairs whose memory is on its way
    for (std::size_t i = 0; i < ahead + 4; ++i) p[n + i] = p[n - 1];
    for (std::size_t i = 0; i < n; i += 4) {
      for (std::size_t j = i + ahead; j < i + ahead + 4; ++j) __builtin_prefetch(high + (p[j] & doc_mask) * bytes);
      const std::uint32_t d0 = p[i] & doc_mask, d1 = p[i + 1] & doc_mask, d2 = p[i + 2] & doc_mask, d3 = p[i + 3] & doc_mask;
      const Query *q0 = query_of(p[i] >> doc_bits), *q1 = query_of(p[i + 1] >> doc_bits),
                  *q2 = query_of(p[i + 2] >> doc_bits), *q3 = query_of(p[i + 3] >> doc_bits);
      std::int32_t sums[4];
      unsigned good = Isa::above({high + d0 * bytes, high + d1 * bytes, high + d2 * bytes, high + d3 * bytes},
                                 {q0, q1, q2, q3}, {scale[d0], scale[d1], scale[d2], scale[d3]}, width, sums);
      if (n - i < 4) good &= (1u << (n - i)) - 1;
      for (; good; good &= good - 1) {
        const unsigned j = static_cast<unsigned>(__builtin_ctz(good));
        survivors[n_survivors++] = {p[i + j], sums[j]};
        __builtin_prefetch(low + (p[i + j] & doc_mask) * bytes);
      }
    }
  }

  // The 8-bit scores of the survivors. The best are kept.
  template <class QueryOf>
  void settle(std::uint32_t number, QueryOf query_of) {
    const Block& block = s.lists->blocks[number];
    const std::uint8_t* low = block.low(shape);
    const float* scale = block.scale(shape);
    for (std::size_t i = 0; i < n_survivors; ++i) {
      const std::uint32_t doc = survivors[i].pair & (max_block_docs - 1);
      Query& query = query_of(survivors[i].pair >> doc_bits);
      const std::int32_t sum =
          16 * survivors[i].high_sum + Isa::half_sum(low + doc * shape.half_bytes(), query.numbers, shape.width());
      const float score = static_cast<float>(sum - query.sum) * (scale[doc] * query.unit) + query.list_score;
      if (score >= query.entry) keep(query, score, number, doc);
    }
  }

  void keep(Query& query, float score, std::uint32_t number, std::uint32_t doc) {
    const std::uint32_t slot = s.lists->blocks[number].slots(shape)[doc];
    if (slot >= s.n_slots) throw std::out_of_range("blocks: slots");
    const std::uint64_t key = score_key(score, slot);
    Kept* own = &kept[query.index * s.n_keep];
    if (query.n_kept == s.n_keep && key <= own[s.n_keep - 1].key) return;
    std::size_t at = query.n_kept < s.n_keep ? query.n_kept++ : s.n_keep - 1;
    for (; at > 0 && own[at - 1].key < key; --at) own[at] = own[at - 1];
    own[at] = {key, number, doc};
    if (query.n_kept == s.n_keep) query.entry = std::max(query.entry, score_of_key(own[s.n_keep - 1].key));
    if (query.n_kept >= s.k) query.limit = std::max(query.limit, score_of_key(own[s.k - 1].key));
  }

  // The documents of a block that may be found, 4 words for each group.
  const std::uint64_t* live_words(std::uint32_t number) {
    const Block& block = s.lists->blocks[number];
    if (!s.allowed) return block.live.get();
    std::vector<std::uint64_t>& words = allowed_of[number];
    if (words.empty()) {
      words.assign(block.live.get(), block.live.get() + 4 * block.n_groups);
      const std::uint32_t* slots = block.slots(shape);
      for (std::size_t doc = 0; doc < block.n_docs; ++doc) {
        if (slots[doc] >= s.n_slots) throw std::out_of_range("blocks: slots");
        if (!s.allowed[slots[doc]]) words[doc / 64] &= ~(std::uint64_t{1} << doc % 64);
      }
    }
    return words.data();
  }

  // The last step -------------------------------------------------------------------------------------

  void finish(const Query& query) {
    const Kept* own = &kept[query.index * s.n_keep];
    const float* vector = s.exact_queries + (first_query + query.index) * s.n_features;
    prefetch_vectors(own, query.n_kept);
    for (std::size_t i = 0; i < query.n_kept; ++i) {
      const std::uint32_t slot = position_of_key(own[i].key);
      const float* stored = stored_vector(own[i], slot);
      const float score = s.is_distance ? -Isa::distance(stored, vector, s.n_features)
                                        : Isa::product(stored, vector, s.n_features);
      exact[i] = score_key(score, slot);
    }
    std::sort(exact.begin(), exact.begin() + query.n_kept, std::greater<>());
    const std::size_t row = (first_query + query.index) * s.k;
    for (std::size_t i = 0; i < s.k; ++i) {
      const bool found = i < query.n_kept;
      ids[row + i] = found ? std::int64_t{position_of_key(exact[i])} : -1;
      scores[row + i] = found ? score_of_key(exact[i]) : lowest;
    }
  }

  void prefetch_vectors(const Kept* own, std::size_t n) {
    if (s.stored == Stored::residuals) return;
    const std::size_t bytes = s.n_features * (s.stored == Stored::float32 ? 4 : 2);
    for (std::size_t i = 0; i < n; ++i) {
      const char* vector = static_cast<const char*>(s.vectors) + position_of_key(own[i].key) * bytes;
      for (std::size_t at = 0; at < std::min<std::size_t>(bytes, 1024); at += 64) __builtin_prefetch(vector + at);
    }
  }

  const float* stored_vector(const Kept& document, std::uint32_t slot) {
    switch (s.stored) {
      case Stored::float32:
        return static_cast<const float*>(s.vectors) + slot * s.n_features;
      case Stored::float16:
        Isa::widen(static_cast<const std::uint16_t*>(s.vectors) + slot * s.n_features, s.n_features, decoded.data());
        return decoded.data();
      case Stored::residuals:
        break;
    }
    const Block& block = s.lists->blocks[document.block];
    const std::size_t list = std::upper_bound(s.lists->first.begin(), s.lists->first.end(), document.block) -
                             s.lists->first.begin() - 1;
    const std::uint8_t *high = block.high(shape) + document.doc * shape.half_bytes(),
                       *low = block.low(shape) + document.doc * shape.half_bytes();
    const float scale = block.scale(shape)[document.doc];
    for (std::size_t j = 0; j < s.n_features; ++j) {
      const std::size_t byte = j / 64 * 32 + j % 32, shift = j % 64 / 32 * 4;
      const int number = 16 * (high[byte] >> shift & 15) + (low[byte] >> shift & 15) - 128;
      decoded[j] = s.centroids[list * s.n_centred + j] + scale * static_cast<float>(number);
    }
    return decoded.data();
  }

  template <class T>
  static void reserve(std::vector<T>& array, std::size_t n) {
    if (array.size() < n) array.resize(n);
  }

  const BlockSearch& s;
  const BlockShape& shape;
  const std::size_t n_planes;
  std::int64_t* ids;
  float* scores;
  float middle;  // expected count of a document that is unrelated to the query
  std::size_t first_query = 0, n_survivors = 0;

  std::vector<Query> queries;
  std::vector<std::int8_t> numbers;
  std::vector<std::uint32_t> planes;  // (n, n_planes) bit numbers
  std::vector<Kept> kept;             // (n, n_keep), best first
  std::vector<std::uint16_t> probes;  // (n, n_probe)
  std::vector<float> routing_scores, list_scores, projected, routed, units;
  std::vector<std::uint16_t> chosen;

  std::vector<Visit> visits, block_order;
  std::vector<std::size_t> visit_starts;
  std::vector<std::uint64_t> masks, order;
  std::vector<std::uint32_t> pairs, candidates, own_rows;
  std::vector<Survivor> survivors;
  std::vector<const std::uint32_t*> offsets;
  std::vector<std::uint32_t> rows_by_width[max_groups + 1];
  std::vector<std::vector<std::uint64_t>> allowed_of;
  std::vector<std::uint64_t> exact;
  std::vector<float> decoded;
};

template <class Isa>
bool search_blocks(const BlockSearch& search, std::int64_t* ids, float* scores) {
  Cancellation cancellation(search.poll);
  // By list, the more queries share a list the better. By query, small parts balance the threads.
  const std::size_t most = search.by_list ? 8192 : 64;
  const std::size_t even = (search.n_queries + search.n_threads - 1) / search.n_threads;
  const std::size_t part = std::max<std::size_t>(1, std::min(most, even));
  run_tasks((search.n_queries + part - 1) / part, search.n_threads, cancellation, [&](std::size_t task) {
    BlockSearcher<Isa>(search, ids, scores)
        .run(task * part, std::min(search.n_queries, (task + 1) * part), cancellation);
  });
  return !cancellation.requested();
}

template <class Isa>
void sample_counts_of(const BlockSearch& search, std::size_t n_groups, std::uint64_t seed, float* expected, float* counts) {
  BlockSearcher<Isa>(search, nullptr, nullptr).sample_counts(n_groups, seed, expected, counts);
}

}  // namespace
}  // namespace posh
