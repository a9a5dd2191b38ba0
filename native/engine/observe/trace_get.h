// Gets one page, step by step, on the same path as a worker's get: for `peercachectl trace`.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/trace.h"
#include "common/types.h"
#include "engine/peers/transports.h"
#include "ipc/handler.h"

namespace peercached {

struct TracedGet {
  TimePoint begin, end;
  PageStatus status = PageStatus::pending;
  std::vector<Trace::Step> steps;
};

// The page, of `length` bytes, goes into memory of its own. Throws std::invalid_argument if the
// namespace cannot be opened.
TracedGet trace_get(RequestHandler& handler, Transports& transports, std::string_view name,
                    std::string_view key, uint32_t length, Deadline deadline);

}  // namespace peercached
