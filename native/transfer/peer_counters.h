// What an engine counts of one peer, over all reads. Thread safe.
#pragma once

#include <atomic>
#include <span>
#include <string>

#include "common/histogram.h"
#include "transfer/transfer.h"

namespace peercached {

struct PeerCounters {
  std::atomic<uint64_t> pages{0}, bytes{0}, errors{0}, deadlines{0}, corrupt{0};
  std::atomic<uint64_t> received{0};  // bytes over TCP, of pages that never became whole, too
  ReadLatency reads;  // from the call to the last page that this peer delivered or failed
  std::atomic<TimePoint> last_heard{TimePoint{}};  // when something of its pages came, in any read

  // A read of `ops` ends: those that are pending get the status `rest`, and all are counted. True
  // if any ended with the deadline.
  bool count(std::span<ReadOp> ops, PageStatus rest);
  // For how long the peer has been silent, in words, at the end of a read that began at `started`;
  // empty if it was not.
  std::string silence(TimePoint started) const;
  // Likewise of one that has sent next to nothing. `received_before`: `received` at that begin.
  std::string dribble(TimePoint started, uint64_t received_before) const;
};

}  // namespace peercached
