// Gets, step by step: those with a span of their caller, until the control plane exports them, and
// the get of `peercachectl trace`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/counter.h"
#include "common/trace.h"
#include "common/types.h"
#include "engine/paths/get_path.h"
#include "engine/peers/transports.h"
#include "ipc/handler.h"

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

// Bounded: when the control plane does not keep up, further traces are dropped and counted. No call
// waits for it.
class CallTraces {
 public:
  static constexpr size_t kCallsMax = 1024;

  // While it is off, calls are not traced.
  void set_on(bool on) { on_.store(on, std::memory_order_relaxed); }
  bool on() const { return on_.load(std::memory_order_relaxed); }

  void get(const GetPath& path, const RequestContext& context, std::span<PageRef> pages);
  std::vector<TracedCall> take();
  uint64_t dropped() const { return dropped_.load(); }

 private:
  std::atomic<bool> on_{false};
  Counter dropped_;
  std::mutex mutex_;
  std::vector<TracedCall> calls_;
};

struct TracedGet {
  TimePoint begin, end;
  PageStatus status = PageStatus::pending;
  std::vector<Trace::Step> steps;
};

// Gets one page on the same path as a worker's get. The page, of `length` bytes, goes into memory
// of its own. Throws std::invalid_argument if the namespace cannot be opened.
TracedGet trace_get(RequestHandler& handler, Transports& transports, std::string_view name,
                    std::string_view key, uint32_t length, Deadline deadline);

}  // namespace peercached
