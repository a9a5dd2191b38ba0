// Local memory that is registered with the devices: in chunks, on every rail, by several threads.
//
// The pool is registered for remote reading only, from its begin on, before pages come there. A
// worker's region is registered for local writing only. A READ needs only the chunks that it writes
// to. If the background thread has not registered them yet, the READ does it itself.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/mutex.h"
#include "transfer/rdma/rail.h"

namespace peercached::rdma {

enum class Purpose : uint8_t {
  publish,  // the pool: peers read it
  receive,  // a region: READs write it
};

class RegisteredMemory {
 public:
  // Registers nothing yet. Throws std::runtime_error naming the limit and the remedy if
  // RLIMIT_MEMLOCK is too low.
  RegisteredMemory(std::span<const std::unique_ptr<Rail>> rails, std::byte* base, uint64_t bytes,
                   Purpose purpose);
  // A dma-buf at the addresses from `base` on. Registers it at once and in one piece, since `fd`
  // may be closed later. Throws std::runtime_error if a device cannot register it.
  RegisteredMemory(std::span<const std::unique_ptr<Rail>> rails, std::byte* base, uint64_t bytes,
                   int dma_buf_fd);
  ~RegisteredMemory();

  std::byte* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t chunk_bytes() const { return chunk_bytes_; }
  size_t chunks() const { return chunks_; }
  int numa_node() const { return numa_node_; }  // of its first page; -1: unknown

  // Registers on several threads until all is done or `until` has passed. Throws if a piece fails.
  // The rest is left to register_one() and ready().
  void register_until(Deadline until);
  // Registers all chunks of the first `bytes`. Throws if a piece fails.
  void register_first(uint64_t bytes);
  bool complete() const { return left_.load(std::memory_order_acquire) == 0; }
  // Registers one more piece. False: none is left to begin.
  bool register_one();

  // Registers the missing chunks of these bytes on `rail`. It may take long, so never call it while
  // a worker waits for our silence. False: not possible before the deadline.
  bool ready(const Rail& rail, const std::byte* address, uint64_t bytes, Deadline deadline);
  // The registration on `rail` of the chunk that holds `address`. The chunk must be ready.
  const ibv_mr* key(const Rail& rail, const std::byte* address);
  // The end of that chunk.
  const std::byte* chunk_end(const std::byte* address) const;
  // One for each chunk; 0 if it is not registered.
  std::vector<uint32_t> remote_keys(const Rail& rail) const;

 private:
  enum class State : uint8_t { none, busy, ready, failed };
  struct Piece {
    std::atomic<State> state{State::none};
    Registration registration;
    uint32_t rail = 0;
    size_t chunk = 0;
  };

  void make_pieces();
  bool begin(Piece& piece);
  bool wait_for(Piece& piece, Deadline deadline);
  void register_piece(Piece& piece);
  Piece& piece_of(const Rail& rail, const std::byte* address);

  const std::span<const std::unique_ptr<Rail>> rails_;
  std::byte* const base_;
  const uint64_t bytes_;
  const Purpose purpose_;
  const int numa_node_;
  uint64_t chunk_bytes_ = 0;
  size_t chunks_ = 0;
  std::deque<Piece> pieces_;  // ordered by chunk, then by rail
  std::atomic<size_t> next_{0};
  std::atomic<size_t> left_{0};
  Mutex mutex_;
  CondVar changed_;
  std::string failure_ GUARDED_BY(mutex_);
};

// The NUMA node of the page at `address`; -1: unknown, or the page is not there yet.
int numa_node_of(const void* address);

}  // namespace peercached::rdma
