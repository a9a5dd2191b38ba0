// Local memory as the devices know it: registered in chunks, on every rail, by several threads.
//
// The pool is registered for remote reading only and must be whole before it is published; a
// worker's region is registered for local writing only, and a READ needs no more than the
// chunks it writes to: whoever comes before the background registers its chunk itself.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "transfer/rdma/rail.h"

namespace peercached::rdma {

enum class Purpose : uint8_t {
  publish,  // the pool: peers read it
  receive,  // a region: READs write it
};

class RegisteredMemory {
 public:
  // Throws std::runtime_error, naming the limit and the remedy, when RLIMIT_MEMLOCK cannot
  // allow it. Registers nothing yet.
  RegisteredMemory(std::span<const std::unique_ptr<Rail>> rails, std::byte* base, uint64_t bytes,
                   Purpose purpose);
  // A dma-buf, addressed from `base` on: in one piece, and at once, for it needs `fd`. Throws
  // std::runtime_error when a device cannot register it.
  RegisteredMemory(std::span<const std::unique_ptr<Rail>> rails, std::byte* base, uint64_t bytes,
                   int dma_buf_fd);
  ~RegisteredMemory();

  std::byte* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t chunk_bytes() const { return chunk_bytes_; }
  size_t chunks() const { return chunks_; }
  int numa_node() const { return numa_node_; }  // of its first page; -1: unknown

  // Registers with several threads until all is done, `until` has come, or one piece failed:
  // then throws. What is left is for background() or for keys().
  void register_until(Deadline until);
  bool complete() const { return left_.load(std::memory_order_acquire) == 0; }
  // Registers one more piece; false when there is none left to begin.
  bool register_one();

  // Registers what is missing of these bytes on `rail`, which may take its time: not to be done
  // while the worker waits for our silence. False when it cannot be had before the deadline.
  bool ready(const Rail& rail, const std::byte* address, uint64_t bytes, Deadline deadline);
  // The registration on `rail` of the chunk that holds `address`, once that is ready.
  const ibv_mr* key(const Rail& rail, const std::byte* address);
  // Where that chunk ends.
  const std::byte* chunk_end(const std::byte* address) const;
  std::vector<uint32_t> remote_keys(const Rail& rail) const;  // once complete

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
  std::deque<Piece> pieces_;  // chunk by chunk, rail by rail within
  std::atomic<size_t> next_{0};
  std::atomic<size_t> left_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string failure_;
};

// The NUMA node that holds the page at `address`; -1: unknown, or not there yet.
int numa_node_of(const void* address);

// Throws std::runtime_error naming RLIMIT_MEMLOCK and the remedy if `bytes` more cannot be
// locked by this process.
void check_lockable(uint64_t bytes, const std::string& what);

}  // namespace peercached::rdma
