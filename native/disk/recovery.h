// At start: what the segments hold becomes the index again.
//
// Segments are scanned by several threads. The record with the highest sequence counts; a removal
// among them takes its digest out, a clear the older epochs of its namespace. A segment that was
// not sealed is sealed where it ends, which cuts off a torn tail and gives its room back; nothing
// is ever appended to a segment of an earlier life. The part of a segment that cannot be read now
// is cut off as well, or the whole file is deleted. This daemon does not know the pages in it, so
// it cannot write their removals down, and a later start, which may read them, would serve them
// again.
#pragma once

#include <cstdint>
#include <string>

#include "disk/directory.h"
#include "disk/disk_tier.h"
#include "disk/index.h"
#include "disk/segment.h"

namespace peercached::disk {

struct Recovered {
  uint64_t last_sequence = 0;
  uint32_t next_number = 1;  // above all that are kept
  uint64_t segments = 0, walked = 0, rejected = 0, corrupt = 0;
  uint64_t removed = 0;
  uint64_t ms = 0;
};

// `is_void`: as in DiskConfig. `sync`: as for write_footer; and files that were deleted stay so. A
// segment that cannot be used is counted; throws DiskError if it is not the disk's fault that one
// cannot be opened.
Recovered recover(Io& io, const Directory& directory, const Identity& identity, bool sync,
                  SegmentSet& segments, Index& index, NamespaceTable& namespaces,
                  const RemovalJudge& is_void);

}  // namespace peercached::disk
