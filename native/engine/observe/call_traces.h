// Gets whose callers record a span, step by step, until the control plane exports them.
//
// Bounded: when the control plane does not keep up, further traces are dropped and counted. No call
// waits for it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "common/trace.h"

namespace peercached {

struct TracedCall {
  CallerSpan caller;
  std::string ns;  // name of the namespace
  TimePoint begin, end;
  uint32_t pages = 0;
  uint32_t ok = 0;
  uint64_t bytes = 0;  // of the pages that are ok
  Trace trace;
};

class CallTraces {
 public:
  static constexpr size_t kCallsMax = 1024;

  // While it is off, calls are not traced.
  void set_on(bool on) { on_.store(on, std::memory_order_relaxed); }
  bool on() const { return on_.load(std::memory_order_relaxed); }

  void add(TracedCall call);
  std::vector<TracedCall> take();
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> on_{false};
  std::atomic<uint64_t> dropped_{0};
  std::mutex mutex_;
  std::vector<TracedCall> calls_;
};

}  // namespace peercached
