// One read call, seen from one peer: which pages are still to be asked for, and how it goes.
// The lanes to that peer share it, from several threads.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "transfer/tcp/peer_channels.h"
#include "transfer/transfer.h"

namespace peercached::tcp {

// What all threads of one read call share.
struct ReadCall {
  const Deadline deadline;
  WriteGate& gate;
  PageSink& sink;
  PeerWatcher& watcher;
  const TimePoint started = Clock::now();
  // A page that is to be looked up again needs time for it: whoever is late has this long then.
  const TimePoint soon = started + (deadline.at - started) / 4 * 3;
  std::atomic<bool> again_wanted{false};
  std::atomic<bool> cut{false};  // ended then
  // Not pending: nobody writes any more, and what has not landed gets this status. `deadline`
  // when the worker has fenced its memory, `region_lost` when the memory is gone.
  std::atomic<PageStatus> stopped{PageStatus::pending};
  std::vector<int> wake_fds = {};  // one eventfd per thread of the call
  void wake_all() const;
  void stop(PageStatus status);
  TimePoint ends_at() const {
    return again_wanted.load(std::memory_order_acquire) ? soon : deadline.at;
  }
  bool over() const { return stopped.load(std::memory_order_acquire) != PageStatus::pending; }
};

class PeerRead {
 public:
  PeerRead(ReadCall& call, ReadBatch& batch, std::shared_ptr<PeerChannels> channels);

  const ReadBatch& batch() const { return batch_; }
  PeerChannels& channels() { return *channels_; }
  uint64_t bytes() const { return bytes_; }

  // Before the first claim: how many lanes will share the work.
  void split_for(size_t lanes);
  // Pages for one request; false when there are none left to ask for.
  bool claim(std::span<ReadOp>& chunk);
  // A claimed chunk of which not a byte has come: to be claimed anew.
  void put_back(std::span<ReadOp> chunk);

  void progressed(size_t bytes) {
    channels_->counters.last_heard.store(Clock::now(), std::memory_order_relaxed);
    channels_->counters.received.fetch_add(bytes, std::memory_order_relaxed);
  }
  // All pages of a claimed chunk have their final status.
  void settle(std::span<const ReadOp> chunk);
  bool settled() const { return unsettled_.load(std::memory_order_acquire) == 0; }

  // A lane begins or ends its work here. With the last one end the hopes for what is left.
  void lane_starts() { lanes_.fetch_add(1, std::memory_order_relaxed); }
  void lane_ends(const Trouble& trouble);
  // The pages of `chunk` that have not landed never will; settles it.
  void fail(std::span<ReadOp> chunk, PageStatus status);
  void report(const Trouble& trouble);  // to the watcher, once

  // After the last lane has ended: final statuses for all, and the counters.
  void finish();

 private:
  ReadCall& call_;
  ReadBatch& batch_;
  const std::shared_ptr<PeerChannels> channels_;
  const uint64_t received_before_;  // from this peer, in all reads
  uint64_t bytes_ = 0;
  uint64_t chunk_bytes_ = 0;
  std::mutex mutex_;
  size_t next_ = 0;
  std::vector<std::span<ReadOp>> again_;
  std::atomic<size_t> unsettled_{0};
  std::atomic<TimePoint> settled_at_{TimePoint::max()};
  std::atomic<unsigned> lanes_{0};
  std::atomic<bool> failed_{false};  // no lane is left, but pages are
  std::atomic<bool> reported_{false};
};

}  // namespace peercached::tcp
