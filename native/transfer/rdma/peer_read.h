// One read call, seen from one peer: its pages cut into slices, and how they go. All on the
// thread of the caller.
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

// What all peers of one read call share.
struct ReadCall {
  const Deadline deadline;
  WriteGate& gate;
  PageSink& sink;
  const MemoryTable& memory;
  // What no rail brings in good time is read over TCP, in the same call.
  const bool tcp_follows;
  // What has not come by then is looked for by another way, if there is one.
  const Clock::duration late_after;
  const TimePoint started = Clock::now();
  // Not pending: nothing more is posted, and what has not landed gets this status.
  PageStatus stopped = PageStatus::pending;
  unsigned chains = 0;  // under way; while there are any we are inside the gate

  bool over() const { return stopped != PageStatus::pending; }
  bool half_over() const { return Clock::now() - started > (deadline.at - started) / 2; }
  // Around each chain; false when the worker has fenced its memory.
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
  // Memory of a device is written to over RDMA alone.
  bool tcp_follows() const { return call_.tcp_follows && !to_device_; }
  // Where the worker's memory is, by its first region; -1: unknown.
  int numa_node() const { return regions_.empty() ? -1 : regions_.front()->numa_node(); }

  // Before anything is posted: registers what the background has not come to. It may take long, and
  // inside the gate a worker that fences would wait for it.
  void register_all(std::span<const std::unique_ptr<Rail>> rails);
  // Before the first claim: how many lanes will share the work.
  void split_for(size_t lanes);
  // Whether there is something to claim, and how many bytes that may be at most.
  bool unclaimed() const { return !todo_.empty(); }
  uint64_t claim_bytes_max() const { return std::max<uint64_t>(chain_bytes_, slice_bytes_); }
  // Slices for one chain into one region, for a holder with a pool of that size; empty when
  // none are left.
  RegisteredMemory* claim(uint64_t pool_bytes, std::vector<Slice>& slices);

  // A slice was read between two looks at the header.
  void landed(const Slice& slice, const SlotHeader& before, const SlotHeader& after);
  // A chain is given up: its slices are tried once more by another channel. `broke`: that happens
  // a few times only.
  void put_back(std::span<const Slice> slices, bool broke);
  // The page of `slice` cannot be had.
  void fail(const Slice& slice, PageStatus status);
  // No lane is left that could go on.
  void give_up() { gave_up_ = !settled(); }
  // Final statuses for all, and the counters.
  void finish();

 private:
  struct Progress {
    uint32_t slices_left = 0;
    bool seen = false;  // op.again holds a header
  };
  void settle(uint32_t op, PageStatus status);
  void one_settled();

  ReadCall& call_;
  ReadBatch& batch_;
  const std::shared_ptr<PeerChannels> channels_;
  uint64_t bytes_ = 0;
  uint32_t slice_bytes_ = 0;
  uint64_t chain_bytes_ = 0;
  std::vector<Slice> todo_;  // from the back
  std::vector<Progress> progress_;
  std::vector<std::shared_ptr<RegisteredMemory>> regions_;  // that the call uses
  std::vector<RegisteredMemory*> region_of_;                // by op
  size_t unsettled_ = 0;
  TimePoint settled_at_ = TimePoint::max();
  bool to_device_ = false;
  bool gave_up_ = false;
};

}  // namespace peercached::rdma
