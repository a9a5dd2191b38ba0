#include "transfer/peer_counters.h"

#include "transfer/silence.h"

namespace peercached {

bool PeerCounters::count(std::span<ReadOp> ops, PageStatus rest) {
  uint64_t ok_bytes = 0, wrong = 0, of[kStatusCount] = {};
  for (ReadOp& op : ops) {
    wrong += op.corrupt;
    if (op.status == PageStatus::pending) op.status = rest;
    if (op.status == PageStatus::ok) ok_bytes += op.length;
    ++of[status_index(op.status)];
  }
  const uint64_t late = of[status_index(PageStatus::deadline)];
  pages += of[status_index(PageStatus::ok)];
  bytes += ok_bytes;
  errors += of[status_index(PageStatus::error)];
  deadlines += late;
  corrupt += wrong;
  return late != 0;
}

std::string PeerCounters::silence(TimePoint started) const {
  const TimePoint heard = last_heard.load(std::memory_order_relaxed), now = Clock::now();
  if (!is_silence(heard, started, now)) return "";
  const auto silent =
      std::chrono::duration_cast<std::chrono::milliseconds>(now - std::max(heard, started));
  return "silent for " + std::to_string(silent.count()) + " ms until the deadline";
}

std::string PeerCounters::dribble(TimePoint started, uint64_t received_before) const {
  const auto time = Clock::now() - started;
  const uint64_t sent = received.load(std::memory_order_relaxed) - received_before;
  if (!is_dribble(sent, time)) return "";
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  return "sent only " + std::to_string(sent) + " bytes in " + std::to_string(ms) + " ms";
}

}  // namespace peercached
