// set: reserve -> copy -> commit -> tell -> answer.
//
// A batch goes through in pieces, so that a batch larger than the pool's free space does not pin it
// whole. A piece stays pinned until its records are in the log. So no withdrawal by eviction comes
// before them. Pages removed meanwhile are withdrawn once more, behind their records.
#pragma once

#include <atomic>
#include <span>

#include "common/copy_crew.h"
#include "directory/record_table.h"
#include "engine/handover/part_queue.h"
#include "engine/measures/counters.h"
#include "engine/measures/latencies.h"
#include "engine/records/publisher.h"
#include "engine/storage/cold_pages.h"
#include "engine/storage/janitor.h"
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
    const RecordTable& records;
    const std::atomic<bool>& note_sets;  // whether `fresh` gets the pages
    PartQueue& fresh;
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
