// A transfer engine that misbehaves on purpose, by seed: for tests and `--faults` runs.
//
// Decorates any TransferEngine. Per page it may, with the given probabilities: delay it; drop
// it (status error); truncate it (only part of the payload counts as landed: the rest of dest
// is overwritten with junk before the sink sees it); corrupt it (flip bits in payload or header
// before the sink sees them); take it blindly (status ok without a look: the test that finds
// wrong bytes then shows that it can). Per batch: reset (all pages error, the peer reported as
// trouble) or hang (nothing until the deadline, and then reported). At most one fault per page. The
// same seed gives the same faults for the same sequence of calls on one thread.
#pragma once

#include <memory>

#include "transfer/transfer.h"

namespace peercached {

struct FaultPlan {
  uint64_t seed = 0;
  double delay = 0, drop = 0, truncate = 0, corrupt = 0, blind = 0;  // per page
  double reset = 0, hang = 0;                                        // per batch
  uint64_t delay_us_max = 2000;
  bool any() const { return delay + drop + truncate + corrupt + blind + reset + hang > 0; }
};

// "seed=7,corrupt=0.01,hang=0.001"; throws std::invalid_argument naming the bad part.
FaultPlan parse_fault_plan(const std::string& text);

std::unique_ptr<TransferEngine> make_faulty(std::unique_ptr<TransferEngine> inner,
                                            const FaultPlan& plan, PeerWatcher& watcher);

}  // namespace peercached
