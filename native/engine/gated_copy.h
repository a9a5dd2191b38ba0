// Copying one page between worker memory and the pool.
//
// The gate (common/write_gate.h), the guard against memory that went away, and the deadline stand
// before every piece, not before the page: a large one is left in its middle.
#pragma once

#include "common/clock.h"
#include "common/copy.h"
#include "common/types.h"
#include "common/write_gate.h"

namespace peercached {

struct GatedCopy {
  PageStatus status;  // ok, deadline (also: the worker has given up) or region_lost
  uint64_t checksum;  // when ok
};

// One of `dest` and `source` is in `worker_memory`, which is as long as the page.
GatedCopy copy_gated(std::byte* dest, const std::byte* source, size_t page_bytes,
                     const std::byte* worker_memory, WriteGate& gate, Deadline deadline);

}  // namespace peercached
