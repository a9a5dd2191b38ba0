// Pages handed over by a draining node to another one (docs/protocol.md, "Drain").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/types.h"

namespace peercached {

// Limits of one part: a reader takes it within a timeout even from a slow peer.
inline constexpr size_t kHandoverPages = 256;
inline constexpr uint64_t kHandoverBytes = 8 << 20;
// Larger pages are not handed over.
inline constexpr uint32_t kHandoverPageBytesMax = 64 << 20;

// A part: pages of one namespace that were used at about the same time.
struct Handover {
  Digest namespace_id;
  uint64_t epoch = 0;
  uint32_t idle_ms = 0;  // since the last use, of the page unused for longest
  std::vector<RecordRow> rows;
};

struct Handovers {
  std::vector<Handover> parts;
  uint64_t too_large = 0;  // pages left out because of their size
};

struct Adopted {
  std::vector<Digest> held;  // in our pool from now on, until evicted
  std::string why_not;       // why the others were not taken; empty if all were
  bool full = false;         // no room: pages used longer ago would be refused, too
};

}  // namespace peercached
