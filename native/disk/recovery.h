// At start: rebuilds the index from the segments.
//
// Several threads scan the segments. The record with the highest sequence wins. A removal deletes
// its digest, a clear the older epochs of its namespace. An unsealed segment is sealed at its end,
// which cuts off a torn tail and frees its room. Nothing is ever appended to a segment of an
// earlier life.
//
// An unreadable part of a segment is cut off too, or the whole file is deleted. This daemon does
// not know the pages in it, so it cannot write removals for them. A later start might read them and
// would serve them again.
#pragma once

#include <cstdint>
#include <string>

#include "disk/disk_tier.h"
#include "disk/folder.h"
#include "disk/index.h"
#include "disk/segment.h"

namespace peercached::disk {

struct Recovered {
  uint64_t last_sequence = 0;
  uint32_t next_number = 1;  // above all numbers in use
  DiskRecovery report;
};

// `is_void`: see DiskConfig. `sync`: see write_footer; also makes deletions durable. Counts
// segments that cannot be used. Throws DiskError if one cannot be opened for a reason other than
// the disk.
Recovered recover(Io& io, const Folder& folder, const Identity& identity, bool sync,
                  SegmentSet& segments, Index& index, NamespaceNumbers& namespaces,
                  const RemovalJudge& is_void);

}  // namespace peercached::disk
