// get: the pool, else the disk, else a peer that holds the page, else the object store.
//
// If a READ is stale, failed or late, its page is looked up once more, inside the same deadline.
// That lookup skips the location cache and prefers another holder. If it fails, too, the page is a
// miss. In between we look into our own pool again, because the page may have come there.
#pragma once

#include <span>

#include "engine/control/serving.h"
#include "engine/measures/counters.h"
#include "engine/measures/latencies.h"
#include "engine/paths/bounce.h"
#include "engine/paths/get_here.h"
#include "engine/paths/get_peers.h"
#include "engine/paths/get_store.h"
#include "engine/records/locations.h"
#include "ipc/handler.h"
#include "removals/running.h"

namespace peercached {

struct GetPath {
  const Serving& serving;  // while it is off, all pages are misses
  const Running& running;
  LocationCache& locations;
  const GetHere here;
  const GetPeers peers;
  const GetStore store;
  Bounce& bounce;
  OperationCounters& counters;
  Latencies& latencies;

  void get(const RequestContext& context, std::span<PageRef> pages) const;

 private:
  // The same as peers.from_peers() for pages of a device, through our own memory.
  void through_bounce(GetPages& get) const;
  void count(const RequestContext& context, GetPages& get) const;
};

}  // namespace peercached
