// A transfer engine that misbehaves on purpose, by seed: for tests and `--faults` runs.
//
// Decorates any TransferEngine. Per page, with the given probabilities, at most one of these:
//   delay     the page waits before the sink sees it
//   drop      status error
//   truncate  the end of dest is overwritten with junk before the sink sees it
//   corrupt   a byte of payload or header is changed before the sink sees it
//   blind     status ok without a check: proves that a test would notice wrong bytes
// Per batch, at most one of these:
//   reset     all pages get status error, and the peer is reported as trouble
//   hang      nothing happens until the deadline; then the peer is reported as trouble
// The same seed gives the same faults for the same sequence of calls on one thread.
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

// Example: "seed=7,corrupt=0.01,hang=0.001". Throws std::invalid_argument naming the bad part.
FaultPlan parse_fault_plan(const std::string& text);

std::unique_ptr<TransferEngine> make_faulty(std::unique_ptr<TransferEngine> inner,
                                            const FaultPlan& plan, PeerWatcher& watcher);

}  // namespace peercached
