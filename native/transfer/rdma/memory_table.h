// The workers' regions as the devices know them, by address.
#pragma once

#include <map>
#include <memory>
#include <shared_mutex>
#include <thread>

#include "transfer/rdma/memory.h"

namespace peercached::rdma {

class MemoryTable {
 public:
  explicit MemoryTable(std::span<const std::unique_ptr<Rail>> rails);
  ~MemoryTable();

  // Registers a region: what takes longer than a moment goes on in the background. Throws
  // std::runtime_error when it cannot be registered; then it is not in the table.
  void add(std::byte* base, uint64_t bytes);
  void add_dma_buf(std::byte* base, uint64_t bytes, int fd);
  // When no READ into it is under way or will be.
  void remove(const std::byte* base);
  // Null if no region holds `address`.
  std::shared_ptr<RegisteredMemory> find(const std::byte* address) const;
  uint64_t bytes() const;

 private:
  void background();

  const std::span<const std::unique_ptr<Rail>> rails_;
  mutable std::shared_mutex mutex_;
  std::map<const std::byte*, std::shared_ptr<RegisteredMemory>> regions_;

  std::mutex queue_mutex_;
  std::condition_variable queued_, moved_on_;
  std::deque<std::weak_ptr<RegisteredMemory>> queue_;
  const RegisteredMemory* in_work_ = nullptr;  // the background's
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace peercached::rdma
