// Blocks as plain arrays and back; see BlockArrays in blocks.h.
#include <algorithm>
#include <cmath>

#include "blocks.h"

namespace posh {
namespace {

constexpr std::size_t line = 64;

bool is_range(const GroupRange& range) {
  return range.shortest > 0 && range.shortest <= range.longest && std::isfinite(range.longest) &&
         std::isfinite(range.offset);
}

// Whether all bits that do not belong to a document are clear. Otherwise a search would read past the block.
bool is_clear_from(const std::uint64_t* live, std::size_t n_groups, std::size_t n_docs) {
  for (std::size_t word = n_docs / 64; word < 4 * n_groups; ++word) {
    const std::size_t n_used = n_docs > 64 * word ? n_docs - 64 * word : 0;
    if (live[word] >> n_used) return false;
  }
  return true;
}

}  // namespace

ArraySizes array_sizes(const BlockLists& lists) {
  ArraySizes sizes{0, lists.blocks.size(), 0};
  for (const Block& block : lists.blocks) {
    sizes.n_bytes += lists.shape.bytes(block.n_docs);
    sizes.n_words += 4 * block.n_groups;
  }
  return sizes;
}

void copy_to_arrays(const BlockLists& lists, std::uint8_t* memory, std::int64_t* table, float* groups,
                    std::uint64_t* live) {
  std::int64_t at = 0;
  for (std::size_t list = 0; list < lists.n_lists(); ++list)
    for (std::uint32_t b = lists.first[list]; b < lists.first[list + 1]; ++b) {
      const Block& block = lists.blocks[b];
      const std::size_t bytes = lists.shape.bytes(block.n_docs);
      memory = std::copy_n(block.planes(), bytes, memory);
      *table++ = at;
      *table++ = static_cast<std::int64_t>(list);
      *table++ = block.n_docs;
      for (const GroupRange& range : block.ranges)
        for (const float value : {range.shortest, range.longest, range.offset}) *groups++ = value;
      live = std::copy_n(block.live.get(), 4 * block.n_groups, live);
      at += static_cast<std::int64_t>(bytes);
    }
}

std::shared_ptr<const BlockLists> open_arrays(const BlockShape& shape, std::size_t n_lists, const BlockArrays& arrays) {
  if (reinterpret_cast<std::uintptr_t>(arrays.memory.get()) % alignof(float)) return nullptr;
  auto result = std::make_shared<BlockLists>();
  result->shape = shape;
  result->first.assign(1, 0);
  std::size_t used = 0, word = 0;  // of memory and live
  for (std::size_t b = 0; b < arrays.n_blocks; ++b) {
    const std::int64_t at = arrays.table[3 * b], list = arrays.table[3 * b + 1], n_docs = arrays.table[3 * b + 2];
    if (n_docs < 1 || n_docs > static_cast<std::int64_t>(max_block_docs)) return nullptr;
    if (list < static_cast<std::int64_t>(result->first.size()) - 1 || list >= static_cast<std::int64_t>(n_lists))
      return nullptr;
    const std::size_t start = static_cast<std::size_t>(at), bytes = shape.bytes(static_cast<std::size_t>(n_docs));
    if (at < 0 || start < used || start % line || start > arrays.n_bytes || arrays.n_bytes - start < bytes)
      return nullptr;
    Block block;
    block.n_docs = static_cast<std::uint32_t>(n_docs);
    block.n_groups = static_cast<std::uint32_t>(BlockShape::n_groups(block.n_docs));
    if (arrays.n_words - word < 4 * block.n_groups) return nullptr;
    if (!is_clear_from(arrays.live.get() + word, block.n_groups, block.n_docs)) return nullptr;
    for (std::size_t g = 0; g < block.n_groups; ++g) {
      const float* values = arrays.groups + 3 * (b * max_groups + g);
      block.ranges[g] = {values[0], values[1], values[2]};
      if (!is_range(block.ranges[g])) return nullptr;
    }
    block.memory = {arrays.memory, arrays.memory.get() + start};
    block.live = {arrays.live, arrays.live.get() + word};
    for (std::size_t i = 0; i < 4 * block.n_groups; ++i)
      block.n_live += static_cast<std::uint32_t>(__builtin_popcountll(block.live.get()[i]));
    result->first.resize(static_cast<std::size_t>(list) + 1, static_cast<std::uint32_t>(b));
    result->blocks.push_back(std::move(block));
    used = start + bytes;
    word += 4 * result->blocks.back().n_groups;
  }
  if (word != arrays.n_words) return nullptr;
  result->first.resize(n_lists + 1, static_cast<std::uint32_t>(arrays.n_blocks));
  count_live(*result);
  return result;
}

}  // namespace posh
