// Pages on their way from a node that drains to another one (docs/protocol.md, "Drain").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/types.h"

namespace peercached {

// Of one part: a reader takes it in a time-out's time even from a slow peer.
inline constexpr size_t kHandoverPages = 256;
inline constexpr uint64_t kHandoverBytes = 8 << 20;
// Larger pages are not handed over.
inline constexpr uint32_t kHandoverPageBytesMax = 64 << 20;

// A part: pages of one namespace that were used at about the same time.
struct Handover {
  Digest namespace_id;
  uint64_t epoch = 0;
  uint32_t idle_ms = 0;  // of the page that has not been used for longest
  std::vector<RecordRow> rows;
};

struct Handovers {
  std::vector<Handover> parts;
  uint64_t too_large = 0;  // pages within the budget that are left out
};

struct Adopted {
  std::vector<Digest> held;  // here from now on, until evicted
  std::string why_not;       // why not the others; empty if there are none
  bool full = false;         // no room: offers of what was used longer ago are in vain, too
};

}  // namespace peercached
