// A graph over documents: each node has a record with the codes of its neighbours, so that one read from memory tells
// which of them are near a query.
//
// Vectors are transformed to n_columns numbers by a rotation, or by principal components that are then rotated. A
// search starts at the nearest of some entry points, and then visits the node with the lowest estimated distance again
// and again. A visit computes the distance of the node from its 8-bit numbers, and estimates those of its neighbours
// from their codes. The nearest nodes by 8-bit numbers are compared by their stored vectors.
//
// The code of a neighbour x of a node c stands for the direction of r = x - c. With v = the numbers that the code
// stands for, |q - x|² = |q - c|² + |r|² - 2 (q - c) · r, where q · r is estimated by (q · v) |r|² / (r · v). So
//   estimate = |q - c|² + add + factor * (q · v),  factor = -2 |r|² / (r · v),  add = |r|² - factor * (c · v).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "blocks.h"
#include "threads.h"

namespace posh {

constexpr std::size_t graph_group = 32;  // neighbours that are estimated together

// A record is one array of stride() bytes:
//   numbers  (n_columns) int8                        the node itself: scale * numbers
//   codes    (n_groups, n_rows, 16) bytes            row r of a group: the r-th four bits of each of 32 codes; byte b
//   has
//                                                    those of neighbour b below those of neighbour 16 + b
//   adds     (degree) uint8                          add = add_low + add_step * adds[i]
//   factors  (degree) uint8                          factor = factor_low + factor_step * factors[i]
//   nodes    (degree) uint32                         the neighbours; the node itself where there are fewer
//   head     GraphHead
// A code has one bit for each column (v is -1 or 1), or two (v is -1.5, -0.5, 0.5 or 1.5).
struct GraphHead {
  float norm;   // squared length, including the part that the transformation loses
  float scale;  // of the 8-bit numbers
  float add_low, add_step, factor_low, factor_step;
  std::uint32_t n_neighbours;
  std::uint32_t unused;
};

struct GraphShape {
  std::size_t n_columns;  // a multiple of 64, up to 1024
  std::size_t n_bits;     // of a column in a code: 1 or 2
  std::size_t degree;     // a multiple of 32

  std::size_t n_groups() const { return degree / graph_group; }
  std::size_t n_rows() const { return n_columns * n_bits / 4; }
  std::size_t codes() const { return n_columns; }
  std::size_t adds() const { return codes() + n_groups() * n_rows() * 16; }
  std::size_t factors() const { return adds() + degree; }
  std::size_t nodes() const { return factors() + degree; }
  std::size_t head() const { return nodes() + degree * sizeof(std::uint32_t); }
  std::size_t stride() const { return (head() + sizeof(GraphHead) + 63) / 64 * 64; }
  bool is_valid() const {
    return n_columns >= 64 && n_columns <= 1024 && n_columns % 64 == 0 && (n_bits == 1 || n_bits == 2) &&
           n_columns * n_bits <= 1024 && degree >= graph_group && degree <= 128 && degree % graph_group == 0;
  }
};

// Transforms a query to n_columns numbers: rows * (factor * query - mean) + bias, where `factor` gives the query the
// length `radius`, or is 1 if radius is 0.
struct GraphTransform {
  const Router* rows;  // (n_columns, n_features), as 7-bit numbers
  const float* mean;   // (n_features)
  const float* bias;   // (n_columns)
  float radius;
};

struct Graph {
  GraphShape shape;
  std::size_t n_nodes, n_features;
  const std::uint8_t* records;  // (n_nodes, stride)
  const std::uint32_t* slots;   // (n_nodes)
  GraphTransform transform;
  const Router* entry_router;    // (n_entries, n_columns)
  const std::uint32_t* entries;  // (n_entries) nodes
  std::size_t n_entries;
};

struct GraphSearch {
  const Graph* graph;
  const float* queries;  // (n_queries, n_features)
  std::size_t n_queries, k;
  float stop;           // the search ends when estimates exceed stop * the k-th lowest distance
  std::size_t n_keep;   // documents that are compared by their vectors, at least k
  Stored stored;        // not Stored::residuals
  const void* vectors;  // (n_slots, n_features)
  std::size_t n_slots;
  bool is_distance;             // scores are minus squared distances, otherwise products
  const std::uint8_t* live;     // (n_slots) 0 or 1, or null: all
  std::size_t first_new;        // documents from this slot on are not in the graph: all of them are compared
  const std::int64_t* skipped;  // (n_queries) a slot that is searched for as if it did not exist, or null
  std::uint32_t* n_visited;     // OUT (n_queries) visited nodes, or null
  std::size_t n_threads;
  Poll poll;
};

// Finds documents with high scores.
//   OUT ids     (n_queries, k) slots;  -1 where fewer than k documents were found
//   OUT scores  (n_queries, k);  -inf where fewer than k documents were found
// Returns false, with OUT undefined, if poll asked to stop. Throws std::out_of_range if a slot is not below n_slots.
// Neighbours that are not below n_nodes are ignored.
using SearchGraphFn = bool (*)(const GraphSearch& search, std::int64_t* ids, float* scores);

// Nodes below n_old have records already, which may come from a file: whatever is in them, nothing outside of the
// arrays is read. The other nodes are new, and the rows of vectors, lost and candidates are theirs.
struct GraphPlan {
  GraphShape shape;
  const float* vectors;  // (n_nodes - n_old, n_columns) transformed
  const float* lost;     // (n_nodes - n_old) the squared length that the transformation loses
  std::size_t n_nodes, n_old;
  const std::int32_t* candidates;  // (n_nodes - n_old, n_candidates) near nodes; -1 = none
  std::size_t n_candidates;
  const std::uint32_t* entries;  // (n_entries) nodes; every node can be reached from one of them
  std::size_t n_entries;
  float alpha;  // an edge to x is left out if a neighbour is alpha times nearer to x than the node is
  std::size_t n_threads;
  Poll poll;
};

// Chooses the neighbours of new nodes and writes their records. An old node whose neighbours change gets a new record,
// with codes of the 8-bit numbers of its old neighbours; the other records stay as they are. Neighbours in old records
// that are not below n_old are ignored. The result does not depend on n_threads.
//   IN/OUT records  (n_nodes, stride); IN only those of old nodes
// Returns false, with OUT undefined, if poll asked to stop.
using BuildGraphFn = bool (*)(const GraphPlan& plan, std::uint8_t* records);

bool search_graph_scalar(const GraphSearch&, std::int64_t*, float*);
bool search_graph_avx2(const GraphSearch&, std::int64_t*, float*);
bool search_graph_avx512(const GraphSearch&, std::int64_t*, float*);
bool build_graph_scalar(const GraphPlan&, std::uint8_t*);
bool build_graph_avx2(const GraphPlan&, std::uint8_t*);
bool build_graph_avx512(const GraphPlan&, std::uint8_t*);

}  // namespace posh
