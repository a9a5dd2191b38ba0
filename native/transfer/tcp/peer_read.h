// One read call, seen from one peer: the pages still to be asked for, and the progress. All lanes
// to that peer share it, from several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "transfer/silence.h"
#include "transfer/tcp/peer_channels.h"
#include "transfer/transfer.h"

namespace peercached::tcp {

// State that all threads of one read call share.
struct ReadCall {
  const Deadline deadline;
  WriteGate& gate;
  PageSink& sink;
  PeerWatcher& watcher;
  const TimePoint started = Clock::now();
  // A peer that has given nothing by then is given up, because another may have its pages.
  const TimePoint half =
      started + std::max<Clock::duration>((deadline.at - started) / 2, kFairWait);
  // A page that did not come needs time for a second lookup, so then the call ends this early.
  const TimePoint soon = started + (deadline.at - started) / 4 * 3;
  std::atomic<bool> again_wanted{false};
  std::atomic<bool> cut{false};  // the call ended at `soon`
  // Not pending: no thread writes any more, and pages that have not landed get this status. It is
  // `deadline` if the worker has fenced its memory, `region_lost` if the memory is gone.
  std::atomic<PageStatus> stopped{PageStatus::pending};
  std::vector<int> wake_fds = {};  // one eventfd per thread of the call
  void wake_all() const;
  void want_again();
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

  // How many lanes will share the work; call it before the first claim.
  void split_for(size_t lanes);
  // Claims pages for one request. False: none are left.
  bool claim(std::span<ReadOp>& chunk);
  // Returns a claimed chunk, to be claimed again. No byte of it may have come.
  void put_back(std::span<ReadOp> chunk);

  void progressed(size_t bytes) {
    channels_->counters.last_heard.store(Clock::now(), std::memory_order_relaxed);
    channels_->counters.received.fetch_add(bytes, std::memory_order_relaxed);
  }
  // All pages of a claimed chunk have their final status.
  void settle(std::span<const ReadOp> chunk);
  // Whether half of the call's time has passed, and the peer was silent for half of it or dribbles.
  bool gives_nothing();
  // When it has been silent for so long, if it stays silent.
  TimePoint judged_at() const;
  bool settled() const { return unsettled_.load(std::memory_order_acquire) == 0; }

  // Counts the lanes at work. If the last one ends in trouble, the remaining pages fail.
  void lane_starts() { lanes_.fetch_add(1, std::memory_order_relaxed); }
  void lane_ends(const Trouble& trouble);
  // Gives `status` to the pages of `chunk` that have not landed, and settles it.
  void fail(std::span<ReadOp> chunk, PageStatus status);
  void report(const Trouble& trouble);  // to the watcher, at most once

  // Sets the final statuses and the counters. Call it after the last lane has ended.
  void finish();

 private:
  // In words, if the peer is silent or dribbles.
  std::string silence() const;

  ReadCall& call_;
  ReadBatch& batch_;
  const std::shared_ptr<PeerChannels> channels_;
  const uint64_t received_before_;  // from this peer, in all reads
  uint64_t bytes_ = 0;
  uint64_t chunk_bytes_ = 0;
  Mutex mutex_;
  size_t next_ GUARDED_BY(mutex_) = 0;
  std::vector<std::span<ReadOp>> again_ GUARDED_BY(mutex_);
  std::atomic<size_t> unsettled_{0};
  std::atomic<TimePoint> settled_at_{TimePoint::max()};
  std::atomic<unsigned> lanes_{0};
  std::atomic<bool> failed_{false};  // pages are left, but no lane
  std::atomic<bool> given_up_{false};
  std::atomic<bool> reported_{false};
};

}  // namespace peercached::tcp
