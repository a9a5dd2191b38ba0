// set: reserve -> copy -> commit -> publish -> answer.
//
// A batch goes through in pieces, so that a batch larger than the pool's free space does not pin it
// whole. A piece stays pinned until the owners have its records, or they are queued. So a
// withdrawal by eviction can never overtake them. Pages removed meanwhile are withdrawn once more,
// behind their records.
#pragma once

#include <atomic>
#include <span>

#include "engine/cold_pages.h"
#include "engine/control.h"
#include "engine/copies.h"
#include "engine/counters.h"
#include "engine/crew.h"
#include "engine/janitor.h"
#include "engine/latencies.h"
#include "engine/part_queue.h"
#include "engine/publisher.h"
#include "ipc/handler.h"
#include "pool/pool.h"
#include "removals/running.h"

namespace peercached {

class SetPath {
 public:
  struct Parts {
    const std::atomic<bool>& taking;  // while false, sets are answered with `draining`
    Pool& pool;
    ColdPages& cold;
    const Running& running;
    Publisher& publisher;
    const NodeTable& nodes;
    const Copies* copies;                // may be null
    const std::atomic<bool>& note_sets;  // whether `fresh` gets the pages
    PartQueue& fresh;
    ControlQueue& control;
    Janitor& janitor;
    CopyCrew& crew;
    OperationCounters& counters;
    Latencies& latencies;
  };

  explicit SetPath(const Parts& parts) : parts_(parts) {}
  void set(const RequestContext& context, std::span<PageRef> pages);

 private:
  struct Run;
  const Parts parts_;
};

}  // namespace peercached
