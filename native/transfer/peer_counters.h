// Counters of one peer, over all reads. Thread safe.
#pragma once

#include <atomic>
#include <span>
#include <string>

#include "common/histogram.h"
#include "transfer/transfer.h"

namespace peercached {

struct PeerCounters {
  std::atomic<uint64_t> pages{0}, bytes{0}, errors{0}, deadlines{0}, corrupt{0};
  std::atomic<uint64_t> received{0};  // bytes over TCP, including pages that never became whole
  ReadLatency reads;  // from the call to the last page that this peer delivered or failed
  std::atomic<TimePoint> last_heard{TimePoint{}};  // arrival of the last bytes, in any read

  // Ends a read of `ops`: pending ones get the status `rest`, and all are counted. Returns true if
  // any op missed the deadline.
  bool count(std::span<ReadOp> ops, PageStatus rest);
  // Says in words how long the peer had been silent when a read that began at `started` ended.
  // Empty if it was not silent.
  std::string silence(TimePoint started) const;
  // The same for a peer that sent almost nothing. `received_before`: value of `received` at
  // `started`.
  std::string dribble(TimePoint started, uint64_t received_before) const;
};

}  // namespace peercached
