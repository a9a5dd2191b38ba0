// At start: what the segments hold becomes the index again.
//
// Segments are scanned by several threads. The record with the highest sequence counts; a removal
// among them takes its digest out, a clear the older epochs of its namespace. A segment that was
// not sealed is sealed where it ends, which cuts off a torn tail and gives its room back; nothing
// is ever appended to a segment of an earlier life.
#pragma once

#include <cstdint>
#include <string>

#include "disk/directory.h"
#include "disk/index.h"
#include "disk/segment.h"

namespace peercached::disk {

struct Recovered {
  uint64_t last_sequence = 0;
  uint32_t next_number = 1;
  uint64_t segments = 0, walked = 0, rejected = 0, corrupt = 0;
  uint64_t ms = 0;
};

// `sync`: as for write_footer. Throws nothing: a segment that cannot be used is counted.
Recovered recover(Io& io, const Directory& directory, const Identity& identity, bool sync,
                  SegmentSet& segments, Index& index, NamespaceTable& namespaces);

}  // namespace peercached::disk
