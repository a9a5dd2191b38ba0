// This node's part of the directory: the ring of owners, our shard, and the answers that we give as
// an owner. docs/directory.md explains it.
//
// Thread safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>

#include "common/types.h"
#include "engine/counters.h"
#include "engine/fences.h"
#include "engine/finality.h"
#include "engine/nodes.h"
#include "shard/ring.h"
#include "shard/shard.h"
#include "transfer/tcp/frames.h"

namespace peercached {

class Directory {
 public:
  // `on_untidy`: the shard has records to sweep.
  Directory(uint64_t shard_entries, std::function<void()> on_untidy, NodeTable& nodes,
            OperationCounters& counters);

  // Null until the first set_ring(), which also closes all owners to publish frames.
  std::shared_ptr<const Ring> ring() const;
  void set_ring(std::shared_ptr<const Ring> ring);
  // Nobody else is in the ring.
  bool alone() const { return alone_.load(std::memory_order_acquire); }

  Shard& shard() { return shard_; }
  const Shard& shard() const { return shard_; }
  Finality& finality() { return finality_; }

  // Holder indices, as nodes come and go.
  void add_holder(HolderIndex holder);
  void drop_holder(HolderIndex holder);

  // --- as an owner, for peers
  // Looks digests up in our shard, for a reader with that view. `located` is empty before.
  void lookup(std::span<const Digest> digests, uint64_t view_number, Located& located);
  // Stores a holder's records in our shard. False: not all of them are there.
  bool store(Incarnation holder, uint64_t fence, std::span<const RecordRow> rows);
  // From now on the holder's publish frames with a lower fence are refused (fences.h).
  void raise_fence(HolderIndex holder, uint64_t fence) { fences_.raise(holder, fence); }

 private:
  NodeTable& nodes_;
  OperationCounters& counters_;
  Shard shard_;
  mutable std::mutex ring_mutex_;
  std::shared_ptr<const Ring> ring_;
  std::atomic<bool> alone_{true};
  Finality finality_;
  Fences fences_;
};

}  // namespace peercached
