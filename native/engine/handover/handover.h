// Pages handed over to another node by one that drains (docs/protocol.md, "Adopt") or is full
// (docs/page-placement.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/types.h"
#include "pool/pool.h"

namespace peercached {

// Limits of one part: a reader takes it within a timeout even from a slow peer.
inline constexpr size_t kHandoverPages = 256;
inline constexpr uint64_t kHandoverBytes = 8 << 20;
// Larger pages are not handed over.
inline constexpr uint32_t kHandoverPageBytesMax = 64 << 20;

// An unused page is spilled at most this often.
inline constexpr uint8_t kSpillMovesMax = 2;
// A spilled page may replace pages that have been idle this many times as long. With 1, equally
// busy pools would exchange pages for nothing.
inline constexpr double kSpillIdleTimes = 1.2;

// A part: pages of one namespace that were used at about the same time.
struct Handover {
  Digest namespace_id;
  uint64_t epoch = 0;
  uint32_t idle_ms = 0;  // since the last use, of the page unused for longest
  uint8_t moves = 0;     // earlier ones, since the last use
  bool spilled = false;  // by a full node, not by one that drains
  // If it is set, the holder keeps the pages, and our copies are replicas. The pool has at most so
  // many bytes of replicas.
  std::optional<uint64_t> replicas_bytes_max;
  // Of replicas: Running::changes() before their records were learnt. If it has changed since, we
  // do not take them: their holder may have missed a removal.
  uint64_t learnt_at = 0;
  std::vector<RecordRow> rows;
  // Of pages of the object store: they are not committed from then on, because they may have been
  // removed.
  std::optional<TimePoint> valid_until = {};
  // Of these: nobody has asked for them. Taken only while the pool has free room.
  bool ahead = false;
};

// A part that is being filled with pages, up to the limits.
struct OpenPart {
  Handover part;
  uint64_t bytes = 0;

  bool has_room(const RecordRow& row) const {
    return part.rows.size() < kHandoverPages &&
           (bytes == 0 || bytes + row.length <= kHandoverBytes);
  }
  void add(const RecordRow& row) {
    part.rows.push_back(row);
    bytes += row.length;
  }
  Handover close() { return std::exchange(*this, {}).part; }
};

struct Handovers {
  std::vector<Handover> parts;
  uint64_t too_large = 0;  // pages left out because of their size
};

struct Adopted {
  std::vector<Digest> taken;    // in our pool from now on, until evicted
  std::string why_not;          // why the others were not taken; empty if all were
  bool full = false;            // no room: pages used longer ago would be refused, too
  PoolRoom room;                // afterwards
  std::vector<Digest> corrupt;  // of land(): their bytes are not those of their checksum
};

}  // namespace peercached
