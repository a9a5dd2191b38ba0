// Copies one page between worker memory and the pool.
//
// Each piece checks the gate (common/write_gate.h) and the deadline, and is guarded against memory
// that goes away. So a large page can be given up in its middle.
#pragma once

#include "common/clock.h"
#include "common/copy.h"
#include "common/types.h"
#include "common/write_gate.h"

namespace peercached {

struct GatedCopy {
  PageStatus status;  // ok, deadline (also: the worker has given up) or region_lost
  uint64_t checksum;  // valid if ok
};

// `worker_memory` is `dest` or `source`: the page's bytes in the worker's region.
GatedCopy copy_gated(std::byte* dest, const std::byte* source, size_t page_bytes,
                     const std::byte* worker_memory, WriteGate& gate, Deadline deadline);

}  // namespace peercached
