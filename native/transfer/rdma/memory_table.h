// The workers' regions that are registered with the devices, by address.
#pragma once

#include <map>
#include <memory>
#include <thread>

#include "common/mutex.h"
#include "transfer/rdma/memory.h"

namespace peercached::rdma {

class MemoryTable {
 public:
  explicit MemoryTable(std::span<const std::unique_ptr<Rail>> rails);
  ~MemoryTable();

  // Registers a region; if that takes long, the background thread completes it. Throws
  // std::runtime_error if it cannot be registered: then it is not in the table.
  void add(std::byte* base, uint64_t bytes, int dma_buf_fd = -1);
  // Call it when no READ into the region is in flight or will start.
  void remove(const std::byte* base);
  // Returns null if no region holds `address`.
  std::shared_ptr<RegisteredMemory> find(const std::byte* address) const;
  uint64_t bytes() const;

 private:
  void background();

  const std::span<const std::unique_ptr<Rail>> rails_;
  mutable SharedMutex mutex_;
  std::map<const std::byte*, std::shared_ptr<RegisteredMemory>> regions_ GUARDED_BY(mutex_);

  Mutex queue_mutex_;
  CondVar queued_, moved_on_;
  std::deque<std::weak_ptr<RegisteredMemory>> queue_ GUARDED_BY(queue_mutex_);
  // Used by the background thread now.
  const RegisteredMemory* in_work_ GUARDED_BY(queue_mutex_) = nullptr;
  bool stopping_ GUARDED_BY(queue_mutex_) = false;
  std::thread thread_;
};

}  // namespace peercached::rdma
