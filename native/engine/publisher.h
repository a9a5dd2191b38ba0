// Records and withdrawals of our pages, on their way out: to the owners, and to nodes that keep
// copies of our records (record_feed.h).
//
// Owners get them by one of three ways. If we are alone in the ring, our own shard is the only
// owner. Records of set pages go in frames of the data channels, straight from the caller's thread,
// if nothing is amiss: everybody has the view, and all owners are in sync with us, reachable, and
// take all records. Everything else goes over the control plane. Its streams keep records and
// withdrawals in order, and know former owners.
//
// Thread safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "common/clock.h"
#include "common/types.h"
#include "engine/control.h"
#include "engine/counters.h"
#include "engine/directory.h"
#include "engine/nodes.h"
#include "engine/record_feed.h"
#include "engine/under_way.h"
#include "pool/pool.h"
#include "transfer/transfer.h"

namespace peercached {

class Publisher {
 public:
  struct Parts {
    Pool& pool;
    NodeTable& nodes;
    Directory& directory;
    ControlQueue& control;
    TransferEngine& transfer;
    OperationCounters& counters;
  };

  explicit Publisher(const Parts& parts) : parts_(parts) {}

  // Queues records and withdrawals for owners and followers. Nobody waits for them.
  void tell(std::span<const RecordRow> rows);
  // If we are alone in the ring, stores the rows in our own shard. Else false.
  bool store_alone(std::span<const RecordRow> rows);
  // False: some owner may lack some of them, so the control plane must send them.
  bool send_in_frames(std::span<const RecordRow> rows, Deadline deadline);
  // Of the publish frames that go out now (fences.h).
  uint64_t fence() const { return fence_.load(); }

  // What followers are told. tell() appends to it; everybody else who sends records does, too.
  RecordFeed& feed() { return feed_; }
  // Commits whose records are not told yet.
  UnderWay& commits() { return commits_; }

 private:
  // A follower that is further behind begins anew. The kept changes take 3 MiB.
  static constexpr size_t kFeedChanges = 1 << 16;

  const Parts parts_;
  std::atomic<uint64_t> fence_{1};
  RecordFeed feed_{kFeedChanges};
  UnderWay commits_;
};

}  // namespace peercached
