#include "transfer/rdma/memory_table.h"

#include "common/thread_name.h"

namespace peercached::rdma {
namespace {

// A worker waits at most this long for its REGISTER; most regions are complete by then.
constexpr int kForegroundMs = 500;

}  // namespace

MemoryTable::MemoryTable(std::span<const std::unique_ptr<Rail>> rails) : rails_(rails) {
  thread_ = named_thread("rdma memory", [this] { background(); });
}

MemoryTable::~MemoryTable() {
  {
    MutexLock lock(queue_mutex_);
    stopping_ = true;
  }
  queued_.notify_all();
  thread_.join();
}

void MemoryTable::add(std::byte* base, uint64_t bytes, int dma_buf_fd) {
  auto memory = dma_buf_fd < 0
                    ? std::make_shared<RegisteredMemory>(rails_, base, bytes, Purpose::receive)
                    : std::make_shared<RegisteredMemory>(rails_, base, bytes, dma_buf_fd);
  if (!memory->complete()) memory->register_until(Deadline::after_ms(kForegroundMs));
  {
    WriterLock lock(mutex_);
    regions_[base] = memory;
  }
  if (memory->complete()) return;
  {
    MutexLock lock(queue_mutex_);
    queue_.push_back(memory);
  }
  queued_.notify_one();
}

void MemoryTable::remove(const std::byte* base) {
  std::shared_ptr<RegisteredMemory> memory;
  {
    WriterLock lock(mutex_);
    const auto found = regions_.find(base);
    if (found == regions_.end()) return;
    memory = std::move(found->second);
    regions_.erase(found);
  }
  // The registration must be gone when this returns. The thread that drops the last reference
  // deregisters the memory, and that must be this one. So wait until the background thread has
  // dropped its reference.
  {
    MutexLock lock(queue_mutex_);
    while (in_work_ == memory.get()) moved_on_.wait(queue_mutex_);
    std::erase_if(queue_, [&](const auto& queued) { return queued.lock() == memory; });
  }
  memory.reset();
}

std::shared_ptr<RegisteredMemory> MemoryTable::find(const std::byte* address) const {
  ReaderLock lock(mutex_);
  auto after = regions_.upper_bound(address);
  if (after == regions_.begin()) return nullptr;
  const auto& memory = std::prev(after)->second;
  return address < memory->base() + memory->bytes() ? memory : nullptr;
}

uint64_t MemoryTable::bytes() const {
  ReaderLock lock(mutex_);
  uint64_t sum = 0;
  for (const auto& [base, memory] : regions_) sum += memory->bytes();
  return sum;
}

void MemoryTable::background() {
  MutexLock lock(queue_mutex_);
  while (true) {
    while (!stopping_ && queue_.empty()) queued_.wait(queue_mutex_);
    if (stopping_) return;
    auto memory = queue_.front().lock();
    in_work_ = memory.get();
    bool more;
    {
      MutexUnlock unlocked(queue_mutex_);
      more = memory && memory->register_one();
    }
    memory.reset();  // not the last reference: remove() waits for us
    in_work_ = nullptr;
    moved_on_.notify_all();
    if (!more) queue_.pop_front();
  }
}

}  // namespace peercached::rdma
