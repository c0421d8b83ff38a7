// Checks the memory that a thread keeps after searches in blocks: Workspace::bytes() counts every buffer, and no more
// than max_kept_bytes remain allocated. Counts the allocations of this thread by replacing operator new.
#include <cstdio>
#include <cstdlib>
#include <new>

#include "block_plain.h"
#include "block_search.h"
#include "kernels.h"
#include "random_blocks.h"

namespace {

thread_local std::size_t live_bytes = 0;

// Stores the size in front of the memory.
void* allocate(std::size_t size, std::size_t alignment) {
  auto* memory = static_cast<char*>(std::aligned_alloc(alignment, (size + 2 * alignment - 1) / alignment * alignment));
  if (!memory) throw std::bad_alloc();
  *reinterpret_cast<std::size_t*>(memory) = size;
  live_bytes += size;
  return memory + alignment;
}

void release(void* memory, std::size_t alignment) {
  if (!memory) return;
  char* start = static_cast<char*>(memory) - alignment;
  live_bytes -= *reinterpret_cast<std::size_t*>(start);
  std::free(start);
}

constexpr std::size_t default_alignment = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

}  // namespace

void* operator new(std::size_t size) { return allocate(size, default_alignment); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { release(memory, default_alignment); }
void operator delete(void* memory, std::size_t) noexcept { release(memory, default_alignment); }
void operator delete(void* memory, std::align_val_t alignment) noexcept {
  release(memory, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory, std::size_t, std::align_val_t alignment) noexcept {
  release(memory, static_cast<std::size_t>(alignment));
}

namespace {

struct Isa : posh::BlockPlain {
  static constexpr posh::WinnersFn winners = posh::winners_scalar;
};

// Compares the bytes that are allocated, except those before, with the workspace's own count.
bool workspace_is_accounted(std::size_t before) {
  const std::size_t allocated = live_bytes - before, counted = posh::workspace_of_thread.bytes();
  if (allocated == counted && counted <= posh::max_kept_bytes) return true;
  std::printf("the workspace counts %zu bytes, %zu are allocated, at most %zu may remain\n", counted, allocated,
              posh::max_kept_bytes);
  return false;
}

// Runs a search and compares the bytes that it leaves allocated with the workspace's own count.
bool search_is_accounted(posh::BlockSearch& search) {
  std::vector<std::int64_t> ids(search.n_queries * search.k);
  std::vector<float> scores(search.n_queries * search.k);
  const std::size_t before = live_bytes - posh::workspace_of_thread.bytes();
  posh::search_blocks<Isa>(search, ids.data(), scores.data());
  return workspace_is_accounted(before);
}

// The same for a range search, which finds many documents.
bool radius_search_is_accounted(posh::BlockSearch search) {
  const std::vector<float> bounds(search.n_queries, -1e30f);
  std::vector<std::vector<std::uint64_t>> found(search.n_queries);
  search.bounds = bounds.data();
  search.k = search.n_keep = 0;
  search.has_first = false;
  const std::size_t before = live_bytes - posh::workspace_of_thread.bytes();
  posh::search_radius<Isa>(search, found.data());
  for (std::vector<std::uint64_t>& keys : found) std::vector<std::uint64_t>().swap(keys);
  return workspace_is_accounted(before);
}

// Searches a random case, or one of few documents with `n_queries` queries.
bool random_search_is_accounted(std::optional<std::size_t> n_queries) {
  auto random = std::make_unique<Case>();
  while (n_queries && random->n_docs > 100) random = std::make_unique<Case>();
  Case& c = *random;
  if (n_queries) {
    c.n_queries = *n_queries;
    c.queries = random_floats(c.n_queries * c.n_features, c.scale);
  }
  const posh::Router router(c.routing.data(), c.bias.data(), c.n_lists, c.shape.n_columns);
  const std::vector<std::uint8_t> removed(c.n_slots), allowed(c.n_slots, 1);
  const Lists lists = random_lists(c, {c.n_docs}, removed, posh::kernels[0].encode_docs);
  posh::BlockSearch search = random_search(c, router, allowed);
  search.lists = lists.get();
  search.n_threads = 1;
  if (n_queries) search.n_keep = std::max<std::size_t>(search.n_keep, 400);
  return radius_search_is_accounted(search) && search_is_accounted(search);
}

}  // namespace

// Takes the number of cases as an optional argument.
int main(int n_arguments, char** arguments) {
  const int n_cases = n_arguments > 1 ? std::atoi(arguments[1]) : 40;
  random_search_is_accounted(1);  // starts the thread pool, which lives until the end
  for (int i = 0; i < n_cases; ++i)
    if (!random_search_is_accounted(std::nullopt)) return 1;
  if (posh::workspace_of_thread.bytes() == 0) return std::printf("small searches must keep their workspace\n"), 1;
  constexpr std::size_t many = 3000;  // 3000 * 400 candidates exceed max_kept_bytes
  if (!random_search_is_accounted(many)) return 1;
  if (posh::workspace_of_thread.bytes() != 0) return std::printf("a large search must release its workspace\n"), 1;
  std::printf("%d searches, their workspaces are accounted for\n", n_cases);
}
