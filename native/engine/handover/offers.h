// Our pages as parts that another node may take: all of a node that drains, the coldest of a full
// one, or those that an operator names.
//
// Thread safe.
#pragma once

#include <cstdint>
#include <span>

#include "common/types.h"
#include "engine/handover/handover.h"
#include "engine/storage/namespaces.h"
#include "pool/pool.h"

namespace peercached {

struct Offers {
  Pool& pool;
  const NamespaceTable& namespaces;

  // Our pages in the order of a drain.
  Handovers warmest(uint64_t bytes_max) const;
  // The pages that are evicted while `bytes` more are set, and may be spilled.
  Handovers coldest(uint64_t bytes) const;
  // These pages, as far as they are in our pool. They count as used now, so that the node takes
  // them.
  Handovers of(std::span<const Digest> digests) const;

 private:
  Handovers in_parts(std::span<const IdlePage> pages) const;
};

}  // namespace peercached
