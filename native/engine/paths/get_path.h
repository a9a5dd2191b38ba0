// get: the pool, else the disk, else a peer that holds the page.
//
// A page whose READ came back stale, failed or late is looked up once more, inside the same
// deadline. That lookup skips the location cache and prefers another holder. If it fails, too, the
// page is a miss. In between we look into our own pool again, because the page may have come there.
#pragma once

#include <span>

#include "common/copy_crew.h"
#include "engine/control/control_queue.h"
#include "engine/control/serving.h"
#include "engine/handover/adopter.h"
#include "engine/handover/hot_reads.h"
#include "engine/measures/counters.h"
#include "engine/measures/latencies.h"
#include "engine/paths/used_pages.h"
#include "engine/records/holder_speeds.h"
#include "engine/records/locations.h"
#include "engine/records/locator.h"
#include "engine/records/nodes.h"
#include "engine/storage/cold_pages.h"
#include "engine/storage/local_pages.h"
#include "engine/storage/promoter.h"
#include "ipc/handler.h"
#include "pool/pool.h"
#include "removals/running.h"
#include "transfer/transfer.h"
#include "transfer/verify.h"

namespace peercached {

class GetPath {
 public:
  struct Parts {
    const Serving& serving;  // while false, all pages are misses
    Pool& pool;
    ColdPages& cold;
    const Promoter& promoter;
    LocalPages& local;
    const Running& running;
    const Locator& locator;
    LocationCache& locations;
    HolderSpeeds& speeds;
    NodeTable& nodes;
    TransferEngine& reads;
    VerifyingSink& verifier;
    ControlQueue& control;
    UsedPages& used;
    HotReads& hot;
    Adopter& adopter;
    CopyCrew& crew;
    OperationCounters& counters;
    Latencies& latencies;
  };

  explicit GetPath(const Parts& parts) : parts_(parts) {}
  void get(const RequestContext& context, std::span<PageRef> pages);

 private:
  struct Run;  // get_run.h
  const Parts parts_;
};

}  // namespace peercached
