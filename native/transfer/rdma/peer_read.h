// One read call, seen from one peer: the slices of its pages and their progress. Used only on the
// caller's thread.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transfer/rdma/memory_table.h"
#include "transfer/rdma/peer_channels.h"
#include "transfer/transfer.h"

namespace peercached::rdma {

// State that all peers of one read call share.
struct ReadCall {
  const Deadline deadline;
  WriteGate& gate;
  PageSink& sink;
  const MemoryTable& memory;
  // Pages that no rail brings in time are read over TCP, in the same call.
  const bool tcp_follows;
  // After this time without data, a lane tries another way, if there is one.
  const Clock::duration late_after;
  const TimePoint started = Clock::now();
  // Not pending: nothing more is posted, and pages that have not landed get this status.
  PageStatus stopped = PageStatus::pending;
  unsigned chains = 0;  // in flight; while there are any, we are inside the gate

  bool over() const { return stopped != PageStatus::pending; }
  bool half_over() const { return Clock::now() - started > (deadline.at - started) / 2; }
  // Encloses each chain. False: the worker has fenced its memory.
  bool enter() {
    if (chains == 0 && !gate.enter()) return false;
    ++chains;
    return true;
  }
  void leave() {
    if (--chains == 0) gate.leave();
  }
};

class PeerRead {
 public:
  PeerRead(ReadCall& call, ReadBatch& batch, std::shared_ptr<PeerChannels> channels);

  const ReadBatch& batch() const { return batch_; }
  PeerChannels& channels() { return *channels_; }
  uint64_t bytes() const { return bytes_; }
  bool settled() const { return unsettled_ == 0; }
  // Only RDMA can write device memory.
  bool tcp_follows() const { return call_.tcp_follows && !to_device_; }
  // NUMA node of the worker's first region in this call; -1: unknown.
  int numa_node() const { return regions_.empty() ? -1 : regions_.front()->numa_node(); }

  // Registers the chunks that the background thread has not reached. Call it before the first
  // chain: it may take long, and a worker that fences would wait for it.
  void register_all(std::span<const std::unique_ptr<Rail>> rails);
  // How many lanes will share the work; call it before the first claim.
  void split_for(size_t lanes);
  // Whether slices are left to claim, and the most bytes that one claim can have.
  bool unclaimed() const { return !todo_.empty(); }
  uint64_t claim_bytes_max() const { return std::max<uint64_t>(chain_bytes_, slice_bytes_); }
  // Claims slices for one chain into one region, from a pool of `pool_bytes`. Empty when none are
  // left.
  RegisteredMemory* claim(uint64_t pool_bytes, std::vector<Slice>& slices);

  // A slice was read between these two looks at the header.
  void landed(const Slice& slice, const SlotHeader& before, const SlotHeader& after);
  // A chain is given up, and another channel tries its slices again. `broke`: it counts as a failed
  // attempt, and each slice has only a few.
  void put_back(std::span<const Slice> slices, bool broke);
  // The page of `slice` cannot be read.
  void fail(const Slice& slice, PageStatus status);
  // No lane is left that could go on.
  void give_up() { gave_up_ = !settled(); }
  // Sets the final statuses and the counters.
  void finish();

 private:
  struct Progress {
    uint32_t slices_left = 0;
    bool seen = false;  // op.again holds a header
  };
  void one_settled();

  ReadCall& call_;
  ReadBatch& batch_;
  const std::shared_ptr<PeerChannels> channels_;
  uint64_t bytes_ = 0;
  uint32_t slice_bytes_ = 0;
  uint64_t chain_bytes_ = 0;
  std::vector<Slice> todo_;  // taken from the back
  std::vector<Progress> progress_;
  std::vector<std::shared_ptr<RegisteredMemory>> regions_;  // used by this call
  std::vector<RegisteredMemory*> region_of_;                // by op
  size_t unsettled_ = 0;
  TimePoint settled_at_ = TimePoint::max();
  bool to_device_ = false;
  bool gave_up_ = false;
};

}  // namespace peercached::rdma
