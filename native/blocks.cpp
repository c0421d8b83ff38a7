// Builds and replaces blocks; see blocks.h.
#include "blocks.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <numeric>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace posh {
namespace {

constexpr std::size_t line = 64;

// Allocates zeroed memory, aligned to a cache line. Large pieces use large pages, because a search accesses them at
// random.
std::shared_ptr<std::uint8_t> allocate(std::size_t bytes) {
  constexpr std::size_t large_page = std::size_t{1} << 21;
  const std::size_t alignment = bytes >= 4 * large_page ? large_page : line;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment + (bytes == 0) * alignment;
  auto* memory = static_cast<std::uint8_t*>(std::aligned_alloc(alignment, rounded));
  if (!memory) throw std::bad_alloc();
#if defined(__linux__)
  if (alignment == large_page) madvise(memory, rounded, MADV_HUGEPAGE);
#endif
  std::memset(memory, 0, rounded);
  return {memory, std::free};
}

// A block to build: `n_old` documents of another block, then new ones.
struct Draft {
  std::size_t list;
  const Block* old;           // or null
  const std::uint32_t* docs;  // numbers of the new documents
  std::size_t n_new, at;      // at: where its memory begins in shared memory, or `alone`
  static constexpr std::size_t alone = ~std::size_t{0};
  std::size_t n_old() const { return old ? old->n_docs : 0; }
  std::size_t n_docs() const { return n_old() + n_new; }
  std::size_t bytes(const BlockShape& shape) const {  // of the block and its live words
    return shape.bytes(n_docs()) + (32 * BlockShape::n_groups(n_docs()) + line - 1) / line * line;
  }
};

BlockTarget make_target(const BlockShape& shape, std::uint8_t* memory, std::size_t n_docs) {
  BlockTarget to{};
  to.n_groups = BlockShape::n_groups(n_docs);
  to.planes = memory;
  to.high = memory + shape.high_at(n_docs);
  to.low = memory + shape.low_at(n_docs);
  to.fits = shape.fits(memory, n_docs);
  to.slots = shape.slots(memory, n_docs);
  return to;
}

void copy_old(const BlockShape& shape, const Block& old, const BlockTarget& to) {
  for (std::size_t bit = 0; bit < shape.n_bits; ++bit)
    std::memcpy(to.planes + bit * to.n_groups * group_bytes, old.planes() + bit * old.n_groups * group_bytes,
                old.n_groups * group_bytes);
  std::memcpy(to.high, old.high(shape), old.n_docs * shape.high_stride());
  std::memcpy(to.low, old.low(shape), old.n_docs * shape.half_bytes());
  for (std::size_t doc = 0; doc < old.n_docs; ++doc) {
    to.fits[doc] = old.fits(shape)[doc];
    to.slots[doc] = old.slots(shape)[doc];
  }
}

Block build_block(const Draft& draft, const BlockShape& shape, const Projection& projection, const Residuals& residuals,
                  EncodeFn encode, const std::shared_ptr<std::uint8_t>& shared) {
  Block block;
  const std::shared_ptr<std::uint8_t> memory = draft.at == Draft::alone
                                                   ? allocate(draft.bytes(shape))
                                                   : std::shared_ptr<std::uint8_t>(shared, shared.get() + draft.at);
  const std::size_t n = draft.n_docs();
  block.n_docs = static_cast<std::uint32_t>(n);
  block.n_groups = static_cast<std::uint32_t>(BlockShape::n_groups(n));
  BlockTarget target = make_target(shape, memory.get(), n);
  auto* live = reinterpret_cast<std::uint64_t*>(memory.get() + shape.bytes(n));
  if (draft.old) {
    copy_old(shape, *draft.old, target);
    std::copy_n(draft.old->live.get(), 4 * draft.old->n_groups, live);
    std::copy_n(draft.old->ranges, draft.old->n_groups, block.ranges);
  }
  constexpr float largest = std::numeric_limits<float>::max();
  for (std::size_t g = draft.old ? draft.old->n_groups : 0; g < block.n_groups; ++g)
    block.ranges[g] = {largest, smallest_unit, -largest};
  target.first_doc = draft.n_old();
  target.ranges = block.ranges;
  encode(shape, projection, residuals, draft.docs, draft.n_new, target);
  for (std::size_t doc = draft.n_old(); doc < n; ++doc) live[doc / 64] |= std::uint64_t{1} << doc % 64;
  block.n_live = (draft.old ? draft.old->n_live : 0) + static_cast<std::uint32_t>(draft.n_new);
  block.memory = memory;
  block.live = {memory, live};
  return block;
}

// Sorts the new documents by list, shorter residuals first: documents of a group then have similar lengths.
std::vector<std::uint32_t> order_by_list_and_length(const Residuals& residuals) {
  std::vector<float> squares(residuals.n_docs);
  const std::size_t d = residuals.n_features;
  for (std::size_t i = 0; i < residuals.n_docs; ++i) {
    const float *vector = residuals.vectors + i * d, *centroid = residuals.centroids + residuals.lists[i] * d;
    float sum = 0;
    for (std::size_t j = 0; j < d; ++j) sum += (vector[j] - centroid[j]) * (vector[j] - centroid[j]);
    squares[i] = sum;
  }
  std::vector<std::uint32_t> order(residuals.n_docs);
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    if (residuals.lists[a] != residuals.lists[b]) return residuals.lists[a] < residuals.lists[b];
    if (squares[a] != squares[b]) return squares[a] < squares[b];
    return a < b;
  });
  return order;
}

// Assigns drafts their offsets in shared memory, and returns its size. Shared memory is faster to search, because it
// has large pages. But it is not freed before its last block. So if few blocks are built, those that extend another
// block, which will probably be replaced soon, get memory of their own.
std::size_t assign_offsets(std::vector<Draft>& drafts, const BlockLists& before) {
  std::size_t all = 0, made = 0;
  for (const Block& block : before.blocks) all += before.shape.bytes(block.n_docs);
  for (const Draft& draft : drafts) made += draft.bytes(before.shape);
  std::size_t bytes = 0;
  for (Draft& draft : drafts) {
    if (draft.old && 2 * made < all) continue;
    draft.at = bytes;
    bytes += draft.bytes(before.shape);
  }
  return bytes;
}

}  // namespace

Router::Router(const float* centroids, const float* biases, std::size_t n_lists, std::size_t n_columns)
    : n_lists(n_lists), n_columns(n_columns) {
  numbers.assign(n_groups() * n_quads() * 32, 64);
  step.assign(8 * n_groups(), 0.0f);
  bias.assign(8 * n_groups(), -std::numeric_limits<float>::infinity());
  for (std::size_t list = 0; list < n_lists; ++list) {
    const float* centroid = centroids + list * n_columns;
    float largest = 0;
    for (std::size_t j = 0; j < n_columns; ++j) largest = std::max(largest, std::fabs(centroid[j]));
    bias[list] = biases[list];
    step[list] = largest / 63.0f;
    if (!(step[list] >= smallest_unit)) continue;  // all numbers are 0
    std::uint8_t* to = numbers.data() + list / 8 * n_quads() * 32 + list % 8 * 4;
    for (std::size_t j = 0; j < n_columns; ++j)
      to[j / 4 * 32 + j % 4] =
          static_cast<std::uint8_t>(64 + static_cast<int>(std::nearbyint(centroid[j] / step[list])));
  }
}

std::shared_ptr<const BlockLists> with_documents(const BlockLists& lists, const Projection& projection,
                                                 const Residuals& residuals, EncodeFn encode, std::size_t n_threads,
                                                 Poll poll) {
  const BlockShape& shape = lists.shape;
  const std::vector<std::uint32_t> order = order_by_list_and_length(residuals);
  auto result = std::make_shared<BlockLists>();
  result->shape = shape;
  result->first.assign(1, 0);
  std::vector<Draft> drafts;
  std::vector<std::size_t> places;  // of the drafts among the blocks
  for (std::size_t list = 0, at = 0; list < lists.n_lists(); ++list) {
    std::size_t end = at;
    while (end < order.size() && static_cast<std::size_t>(residuals.lists[order[end]]) == list) ++end;
    result->blocks.insert(result->blocks.end(), lists.blocks.begin() + lists.first[list],
                          lists.blocks.begin() + lists.first[list + 1]);
    const bool has_room =
        lists.first[list] < lists.first[list + 1] && lists.blocks[lists.first[list + 1] - 1].n_docs < max_block_docs;
    for (bool extend = has_room; at < end; extend = false) {
      Draft draft{list, extend ? &lists.blocks[lists.first[list + 1] - 1] : nullptr, &order[at], 0, Draft::alone};
      draft.n_new = std::min(end - at, max_block_docs - draft.n_old());
      at += draft.n_new;
      if (!extend) result->blocks.emplace_back();
      places.push_back(result->blocks.size() - 1);
      drafts.push_back(draft);
    }
    result->first.push_back(static_cast<std::uint32_t>(result->blocks.size()));
  }
  const std::shared_ptr<std::uint8_t> memory = allocate(assign_offsets(drafts, lists));
  Cancellation cancellation(poll);
  run_tasks(drafts.size(), n_threads, cancellation, [&](std::size_t i) {
    result->blocks[places[i]] = build_block(drafts[i], shape, projection, residuals, encode, memory);
  });
  if (cancellation.requested()) return nullptr;
  count_live(*result);
  return result;
}

std::shared_ptr<const BlockLists> without_documents(const BlockLists& lists, const std::uint8_t* removed,
                                                    std::size_t n_slots) {
  auto result = std::make_shared<BlockLists>(lists);
  for (Block& block : result->blocks) {
    const Column<const std::uint32_t> slots = block.slots(lists.shape);
    std::shared_ptr<std::uint64_t> live;
    for (std::size_t doc = 0; doc < block.n_docs; ++doc) {
      if (slots[doc] >= n_slots || !removed[slots[doc]]) continue;
      if (!live) {
        live = {new std::uint64_t[4 * block.n_groups], std::default_delete<std::uint64_t[]>()};
        std::copy_n(block.live.get(), 4 * block.n_groups, live.get());
      }
      std::uint64_t& word = live.get()[doc / 64];
      block.n_live -= word >> doc % 64 & 1;
      word &= ~(std::uint64_t{1} << doc % 64);
    }
    if (live) block.live = live;
  }
  count_live(*result);
  return result;
}

void count_live(BlockLists& lists) {
  lists.n_live.assign((lists.n_lists() + 7) / 8 * 8, 0.0f);
  for (std::size_t list = 0; list < lists.n_lists(); ++list)
    for (std::uint32_t b = lists.first[list]; b < lists.first[list + 1]; ++b)
      lists.n_live[list] += static_cast<float>(lists.blocks[b].n_live);
}

void count_documents(const BlockLists& lists, std::int64_t* n_live, std::int64_t* n_stored) {
  for (std::size_t list = 0; list < lists.n_lists(); ++list) {
    n_live[list] = n_stored[list] = 0;
    for (std::uint32_t b = lists.first[list]; b < lists.first[list + 1]; ++b) {
      n_live[list] += lists.blocks[b].n_live;
      n_stored[list] += lists.blocks[b].n_docs;
    }
  }
}

std::vector<std::uint32_t> slots_of_lists(const BlockLists& lists, const std::int32_t* chosen, std::size_t n_chosen) {
  std::vector<std::uint32_t> found;
  for (std::size_t i = 0; i < n_chosen; ++i)
    for (std::uint32_t b = lists.first[chosen[i]]; b < lists.first[chosen[i] + 1]; ++b) {
      const Block& block = lists.blocks[b];
      const Column<const std::uint32_t> slots = block.slots(lists.shape);
      for (std::size_t doc = 0; doc < block.n_docs; ++doc)
        if (block.live.get()[doc / 64] >> doc % 64 & 1) found.push_back(slots[doc]);
    }
  return found;
}

std::shared_ptr<const BlockLists> rearranged_lists(const BlockLists& lists, const std::int32_t* sources,
                                                   std::size_t n_lists) {
  auto result = std::make_shared<BlockLists>();
  result->shape = lists.shape;
  result->first.assign(1, 0);
  for (std::size_t list = 0; list < n_lists; ++list) {
    if (sources[list] >= 0)
      result->blocks.insert(result->blocks.end(), lists.blocks.begin() + lists.first[sources[list]],
                            lists.blocks.begin() + lists.first[sources[list] + 1]);
    result->first.push_back(static_cast<std::uint32_t>(result->blocks.size()));
  }
  count_live(*result);
  return result;
}

void lists_of_slots(const BlockLists& lists, std::int32_t* list_of, std::size_t n_slots) {
  std::fill_n(list_of, n_slots, -1);
  for (std::size_t list = 0; list < lists.n_lists(); ++list)
    for (std::uint32_t b = lists.first[list]; b < lists.first[list + 1]; ++b) {
      const Block& block = lists.blocks[b];
      const Column<const std::uint32_t> slots = block.slots(lists.shape);
      for (std::size_t doc = 0; doc < block.n_docs; ++doc)
        if (slots[doc] < n_slots && block.live.get()[doc / 64] >> doc % 64 & 1)
          list_of[slots[doc]] = static_cast<std::int32_t>(list);
    }
}

}  // namespace posh
