#include "common/gated_copy.h"

#include <algorithm>

#include "common/fault_guard.h"

namespace peercached {
namespace {

struct Step {
  RunningCopy copy;
  size_t page_bytes;
  size_t upto_bytes = 0;
  uint64_t checksum = 0;

  static void run(void* self) {
    auto& step = *static_cast<Step*>(self);
    if (step.upto_bytes < step.page_bytes)
      step.copy.advance(step.upto_bytes);
    else
      step.checksum = step.copy.finish(step.page_bytes);
  }
};

}  // namespace

GatedCopy copy_gated(std::byte* dest, const std::byte* source, size_t page_bytes,
                     const std::byte* worker_memory, WriteGate& gate, Deadline deadline) {
  Step step{RunningCopy(dest, source), page_bytes};
  do {
    if (deadline.passed() || !gate.enter()) return {PageStatus::deadline, 0};
    step.upto_bytes = std::min(step.upto_bytes + kGatePieceBytes, page_bytes);
    const bool there = guarded(worker_memory, page_bytes, Step::run, &step);
    gate.leave();
    if (!there) return {PageStatus::region_lost, 0};
  } while (step.upto_bytes < page_bytes);
  return {PageStatus::ok, step.checksum};
}

}  // namespace peercached
