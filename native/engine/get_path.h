// get: the pool, else the disk, else a peer that holds the page.
//
// A page whose READ came back stale, failed or late is looked up once more, inside the same
// deadline. That lookup skips the location cache and prefers another holder. If it fails, too, the
// page is a miss. In between we look into our own pool again, because the page may have come there.
#pragma once

#include <span>

#include "engine/adopter.h"
#include "engine/cold_pages.h"
#include "engine/control.h"
#include "engine/counters.h"
#include "engine/crew.h"
#include "engine/holder_speeds.h"
#include "engine/hot_reads.h"
#include "engine/latencies.h"
#include "engine/local_pages.h"
#include "engine/locations.h"
#include "engine/locator.h"
#include "engine/nodes.h"
#include "engine/promoter.h"
#include "engine/serving.h"
#include "engine/used_pages.h"
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
