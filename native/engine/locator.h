// Finds where pages are that this node does not hold, for `get` and `exists`. A search asks in
// turn: the copies of other nodes' records, the location cache, our own shard, the owners in frames
// of the data channels, and the control plane. The control plane knows former owners, hedges, and
// waits for late answers. A copy names all holders of a page, so it goes before the cache, which
// names one.
//
// Thread safe.
#pragma once

#include <cstdint>
#include <span>

#include "common/clock.h"
#include "common/trace.h"
#include "common/types.h"
#include "engine/control.h"
#include "engine/copies.h"
#include "engine/counters.h"
#include "engine/directory.h"
#include "engine/holder_speeds.h"
#include "engine/locations.h"
#include "engine/nodes.h"
#include "removals/running.h"
#include "transfer/transfer.h"

namespace peercached {

enum class Trust : uint8_t {
  cached,   // any entry of the location cache: a READ will verify it
  recent,   // only entries learnt a moment ago: the answer is a promise
  nothing,  // no entry: one has just misled us, so ask the owners
};

class Locator {
 public:
  struct Parts {
    NodeTable& nodes;
    Directory& directory;
    LocationCache& locations;
    const HolderSpeeds& speeds;
    const Copies* copies;  // may be null
    const Running& running;
    ControlQueue& control;
    TransferEngine& transfer;
    OperationCounters& counters;
  };

  explicit Locator(const Parts& parts) : parts_(parts) {}

  // Finds records for `digests`. rows[i].holder == kNoHolder: none usable. Then why[i] is absent,
  // suspect, deadline, or stale (the record is our own). failed[i] is the holder that failed us
  // with this page. It is used again only if nobody else has the page. `failed` may be empty.
  // `of_prefix`: digests behind the first one that is nowhere need no lookup.
  void locate(std::span<const Digest> digests, std::span<const HolderIndex> failed, Trust trust,
              Deadline deadline, std::span<RecordRow> rows, std::span<PageStatus> why,
              Trace* trace = nullptr, bool of_prefix = false) const;

 private:
  struct Search;
  const Parts parts_;
};

}  // namespace peercached
