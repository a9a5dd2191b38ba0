// A node's questions to its peers, other than READs of pages. Each batch goes to one peer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/clock.h"
#include "common/types.h"

namespace peercached {

// Pages that one peer is asked to keep in its pool for a while. held[i] = 1: it keeps page i.
struct HoldBatch {
  HolderIndex peer = kNoHolder;
  Incarnation incarnation = 0;
  std::span<const Digest> digests;
  // Result.
  std::span<uint8_t> held;  // must be 0 before the call
  bool answered = false;    // completely
};

// One owner's answer about some digests.
struct Located {
  bool final = false;  // digests without a row are stored nowhere
  std::vector<Incarnation> holders;
  std::vector<RecordRow> rows;  // `holder` is an index into `holders`
};

// Digests that one owner is asked to look up.
struct LookupBatch {
  HolderIndex peer = kNoHolder;
  Incarnation incarnation = 0;
  std::span<const Digest> digests;
  // Result.
  bool answered = false;  // completely, at the time answered_at
  TimePoint answered_at{};
  Located located{.final = true, .holders = {}, .rows = {}};
};

// Changes of our records, for one follower to take (docs/directory.md).
struct PushBatch {
  HolderIndex peer = kNoHolder;
  Incarnation incarnation = 0;
  uint64_t from = 0, to = 0;  // positions
  std::span<const RecordRow> rows;
  // Result.
  bool answered = false;
  uint64_t stands_at = 0;  // its position now; 0: it has none of our records
};

}  // namespace peercached
