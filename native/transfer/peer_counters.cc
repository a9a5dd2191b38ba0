#include "transfer/peer_counters.h"

#include "transfer/silence.h"

namespace peercached {

bool PeerCounters::count(std::span<ReadOp> ops, PageStatus rest) {
  uint64_t ok_pages = 0, ok_bytes = 0, failed = 0, late = 0, wrong = 0;
  for (ReadOp& op : ops) {
    wrong += op.corrupt;
    if (op.status == PageStatus::pending) op.status = rest;
    switch (op.status) {
      case PageStatus::ok:
        ++ok_pages;
        ok_bytes += op.length;
        break;
      case PageStatus::error:
        ++failed;
        break;
      case PageStatus::deadline:
        ++late;
        break;
      default:
        break;
    }
  }
  pages += ok_pages;
  bytes += ok_bytes;
  errors += failed;
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
