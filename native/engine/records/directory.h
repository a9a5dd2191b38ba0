// This node's part of the directory: the ring of owners, the records of other nodes, and the
// answers that we give as an owner. docs/directory.md explains it.
//
// Thread safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "common/types.h"
#include "directory/record_table.h"
#include "directory/ring.h"
#include "engine/measures/counters.h"
#include "engine/records/arrivals.h"
#include "engine/records/nodes.h"
#include "kv_events/picture.h"
#include "removals/running.h"
#include "transfer/messages.h"

namespace peercached {

class Directory {
 public:
  // The records of our own pages that readers may find.
  using OwnRecords = std::function<std::vector<RecordRow>(std::span<const Digest>)>;

  // `on_untidy`: the records need a sweep. `running`: removals. We name their pages to nobody.
  Directory(uint64_t records_max, std::function<void()> on_untidy, NodeTable& nodes,
            const Running& running, OperationCounters& counters);
  // Call once, before anything is looked up.
  void set_own_records(OwnRecords own_records) { own_records_ = std::move(own_records); }

  std::shared_ptr<const Ring> ring() const;  // null until the first set_ring()
  // The one before, for some time: its owners may know more. Null: none.
  std::shared_ptr<const Ring> former_ring() const;
  // `store_all`: we store the records of all nodes; else only of what we own.
  void set_ring(std::shared_ptr<const Ring> ring, bool store_all = true);
  // Tells which digests a follower stores that says this of its ring (FeedQuestion::ring). Null:
  // all, or its ring is another one than ours, and it chooses for itself.
  Feed::Wanted wanted_by(Incarnation follower, uint64_t ring_print) const;
  // Whether we own records, or did by the ring before.
  bool is_owner() const;
  bool was_owner() const;
  // Nobody else is in the ring.
  bool alone() const { return alone_.load(std::memory_order_acquire); }

  std::vector<RecordRow> own_records(std::span<const Digest> digests) const {
    return digests.empty() ? std::vector<RecordRow>() : own_records_(digests);
  }
  Arrivals& arrivals() { return arrivals_; }
  // From now on the picture hears of other nodes' records. Call once, before there are any.
  void tell(kv_events::Picture* picture) { picture_ = picture; }
  RecordTable& records() { return records_; }
  const RecordTable& records() const { return records_; }

  // --- as an owner, for peers
  // Looks digests up, for a reader with that view. `located` is empty before.
  void lookup(std::span<const Digest> digests, uint64_t view_number, Located& located);
  // Takes changes of a holder's records. Returns where we stand in its log.
  uint64_t take(Incarnation holder, const FeedPart& part);

 private:
  NodeTable& nodes_;
  const Running& running_;
  OperationCounters& counters_;
  OwnRecords own_records_;
  Arrivals arrivals_;
  kv_events::Picture* picture_ = nullptr;  // null: nobody is told
  RecordTable records_;
  mutable std::mutex ring_mutex_;
  std::shared_ptr<const Ring> ring_, former_ring_;
  TimePoint former_until_{};
  uint64_t print_ = 0;  // of ring_
  std::atomic<bool> alone_{true};
};

}  // namespace peercached
