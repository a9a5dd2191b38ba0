// exists: the same places as for get, without the READ.
#pragma once

#include <span>

#include "engine/control/control_queue.h"
#include "engine/control/serving.h"
#include "engine/measures/counters.h"
#include "engine/measures/latencies.h"
#include "engine/paths/recent_wishes.h"
#include "engine/records/locations.h"
#include "engine/records/locator.h"
#include "engine/records/nodes.h"
#include "engine/storage/cold_pages.h"
#include "engine/storage/local_pages.h"
#include "engine/storage/promoter.h"
#include "ipc/handler.h"
#include "pool/pool.h"
#include "transfer/transfer.h"

namespace peercached {

class ExistsPath {
 public:
  struct Parts {
    const Serving& serving;  // while false, nothing is here
    Pool& pool;
    const ColdPages& cold;
    Promoter& promoter;
    LocalPages& local;
    const Locator& locator;
    LocationCache& locations;
    const NodeTable& nodes;
    TransferEngine& transfer;
    ControlQueue& control;
    OperationCounters& counters;
    Latencies& latencies;
  };

  explicit ExistsPath(const Parts& parts) : parts_(parts) {}
  // `all`: look up every key, not only up to the first hole.
  ExistsAnswer exists(const RequestContext& context, std::span<PageRef> keys, bool all);

 private:
  struct Run;
  const Parts parts_;
  RecentWishes warm_wishes_;
};

}  // namespace peercached
