// Finds pages at other nodes, for `get` and `exists`. A search asks in turn: the records of other
// nodes that we have, the location cache, as few owners as possible, and then all others, also the
// owners of the former ring. A record names all holders of a page, so the records go before the
// cache, which names one.
//
// Thread safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/trace.h"
#include "common/types.h"
#include "engine/measures/counters.h"
#include "engine/records/directory.h"
#include "engine/records/holder_speeds.h"
#include "engine/records/locations.h"
#include "engine/records/nodes.h"
#include "removals/running.h"
#include "transfer/transfer.h"

namespace peercached {

enum class Trust : uint8_t {
  cached,   // any entry of the location cache: a READ will verify it
  recent,   // only entries learnt a moment ago: the answer is a promise
  nothing,  // no entry: one has just misled us, so ask the owners
};

struct Locator {
  NodeTable& nodes;
  Directory& directory;
  LocationCache& locations;
  const HolderSpeeds& speeds;
  const Running& running;
  TransferEngine& transfer;
  PeerWatcher& watcher;
  OperationCounters& counters;

  // Finds records for `digests`. rows[i].holder == kNoHolder: none usable. Then why[i] is absent,
  // suspect, deadline, or stale (the record is our own). failed[i] is the holder that failed us
  // with this page. It is used again only if nobody else has the page. `failed` may be empty.
  // `of_prefix`: digests behind the first one that is nowhere need no lookup.
  void locate(std::span<const Digest> digests, std::span<const HolderIndex> failed, Trust trust,
              Deadline deadline, std::span<RecordRow> rows, std::span<PageStatus> why,
              Trace* trace = nullptr, bool of_prefix = false) const;

  // All records of these digests that we know. For digests without any, it asks the owners.
  std::vector<RecordRow> find_all(std::span<const Digest> digests, Deadline deadline) const;
  // The records that one owner knows, and whether these are all. The owner may be this node.
  // Nothing: it did not answer.
  std::optional<std::pair<std::vector<RecordRow>, bool>> ask_owner(HolderIndex owner,
                                                                   std::span<const Digest> digests,
                                                                   Deadline deadline) const;

 private:
  struct Search;
};

}  // namespace peercached
