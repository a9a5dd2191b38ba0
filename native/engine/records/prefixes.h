// How much of a prompt's beginning each node has. For routers, which send a request to the node
// with the most of it.
//
// Our own pages come from pool and disk, those of other nodes from their records here
// (record_table.h), so an answer needs no message. A copy lags by milliseconds. For nodes without a
// copy the caller adds records from the owners.
//
// Nothing here counts as a use or as a lookup. Thread safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/types.h"
#include "directory/record_table.h"
#include "engine/control/serving.h"
#include "engine/records/nodes.h"
#include "engine/storage/disk_pages.h"
#include "pool/pool.h"
#include "removals/running.h"

namespace peercached {

// A node's pages from the first one up to the first that it lacks.
struct NodePrefix {
  HolderIndex holder = kNoHolder;
  uint32_t pages = 0;
  uint32_t in_pool = 0;  // of these; the others are on its disk only
};

struct ClusterPrefix {
  uint32_t present = 0;           // pages up to the first that no node has
  std::vector<NodePrefix> nodes;  // those with at least one page, by index
};

// `rows`: in any order, of these digests.
ClusterPrefix prefix_of(std::span<const Digest> digests, std::span<const RecordRow> rows);

struct Prefixes {
  const Serving& serving;  // while false, nothing is here
  Pool& pool;
  const DiskPages& disk;
  const NodeTable& nodes;
  const RecordTable& records;
  const Running& running;

  // `learnt`: records of other nodes from the owners. Leaves out nodes that are suspect.
  ClusterPrefix find(std::span<const Digest> digests, std::span<const RecordRow> learnt) const;

 private:
  void add_own(std::span<const Digest> digests, std::vector<RecordRow>& rows) const;
};

}  // namespace peercached
