// Tells others of changes of our records: all go into our log (record_feed.h), which followers
// read. A set waits until the owners of its pages have its records (docs/directory.md, rules 7 to
// 10).
//
// The caller's thread pushes them. Concurrent sets share one log, so one of them pushes for all
// that wait meanwhile.
//
// Thread safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "common/clock.h"
#include "common/types.h"
#include "engine/control/control_queue.h"
#include "engine/measures/counters.h"
#include "engine/records/directory.h"
#include "engine/records/nodes.h"
#include "engine/records/record_feed.h"
#include "engine/records/under_way.h"
#include "kv_events/picture.h"
#include "transfer/transfer.h"
#include "transfer/trouble.h"

namespace peercached {

class Publisher {
 public:
  struct Parts {
    NodeTable& nodes;
    Directory& directory;
    ControlQueue& control;
    TransferEngine& transfer;
    PeerWatcher& watcher;
    OperationCounters& counters;
  };

  explicit Publisher(const Parts& parts) : parts_(parts) {}

  // Nobody waits for these.
  void append(std::span<const RecordRow> rows);
  // Followers read all our records anew: some have changed without being appended.
  void forget();

  // From now on the picture hears of our records, in the order of the log. Call once, before there
  // are any.
  void tell(kv_events::Picture* picture) { picture_ = picture; }
  // Whether it lacks some of our records, since the last call. Before a scan for it: all that it
  // has of us is void.
  bool must_scan() { return must_scan_.exchange(false); }
  void forget_told();
  // Blocks until whoever readers may ask for these pages knows their last changes. False: not
  // everybody does at the deadline, or some owner is suspect.
  bool wait_told(std::span<const Digest> digests, Deadline deadline);
  // How long wait_told() waits at most, for a silent owner.
  void set_patience(std::chrono::milliseconds patience) { patience_ = patience; }

  RecordFeed& feed() { return feed_; }
  // Commits with records that are not in the log yet.
  UnderWay& commits() { return commits_; }

 private:
  // A follower that is further behind begins anew. The kept changes take 3 MiB.
  static constexpr size_t kFeedChanges = 1 << 16;

  std::vector<HolderIndex> owners_of(const Ring* ring, std::span<const Digest> digests) const;
  void push(std::span<const HolderIndex> owners, TimePoint until);

  const Parts parts_;
  std::atomic<std::chrono::milliseconds> patience_{std::chrono::milliseconds(1000)};
  RecordFeed feed_{kFeedChanges, [this] { parts_.control.post(EventKind::follower_moved, {}); }};
  UnderWay commits_;
  kv_events::Picture* picture_ = nullptr;  // null: nobody is told
  std::mutex told_mutex_;                  // orders the changes for picture_ as in the log
  std::atomic<bool> must_scan_{true};
  std::mutex mutex_;
  std::condition_variable pushed_;
  std::vector<HolderIndex> wanted_;  // owners that the next round is for
  uint64_t rounds_ = 0, rounds_done_ = 0;
};

}  // namespace peercached
