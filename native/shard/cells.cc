#include "shard/cells.h"

#include "shard/reserved_memory.h"

namespace peercached {

size_t Cells::bytes_for(uint32_t cells) {
  return (size_t{cells} * sizeof(PackedRecord) + kPageBytes - 1) / kPageBytes * kPageBytes;
}

void Cells::make_ready(uint32_t cells) {
  const size_t bytes_before = bytes(), bytes_after = bytes_with(cells);
  if (bytes_after <= bytes_before) return;
  ReservedMemory::commit(memory_ + bytes_before, bytes_after - bytes_before);
  bytes_ready_.store(bytes_after, std::memory_order_relaxed);
}

void Cells::close_up(uint32_t end) {
  if (end == this->end()) return;
  const size_t bytes_before = bytes();
  end_.store(end, std::memory_order_relaxed);
  bytes_ready_.store(0, std::memory_order_relaxed);
  free_.store(kNone, std::memory_order_relaxed);
  if (bytes() < bytes_before) ReservedMemory::release(memory_ + bytes(), bytes_before - bytes());
}

}  // namespace peercached
