// Sends records of set pages to the owners in frames of the data channels, straight from this
// thread. Only if nothing is amiss: everybody has the view, and all owners are in sync with us,
// reachable, and take all records. Otherwise the control plane sends them. Its streams keep records
// and withdrawals in order, and know former owners.

#include <algorithm>

#include "engine/engine.h"

namespace peercached {

bool Engine::publish_in_frames(std::span<const RecordRow> rows, Deadline deadline) {
  const TimePoint now = Clock::now();
  // The ring first: a new ring closes all owners before it is set.
  const std::shared_ptr<const Ring> ring = this->ring();
  if (!ring) return false;
  const std::vector<Ring::Part> parts =
      ring->split(std::as_bytes(rows), sizeof(RecordRow), /*first_only=*/false);
  const bool all_open = std::all_of(parts.begin(), parts.end(), [&](const Ring::Part& part) {
    return nodes_.open_owner(part.owner) &&
           (part.owner == kSelfHolder ||
            (nodes_.readable(part.owner) && !nodes_.slow(part.owner, now)));
  });
  if (parts.empty() || !all_open) return false;

  std::vector<PublishBatch> batches;
  for (const Ring::Part& part : parts) {
    const std::span some(reinterpret_cast<const RecordRow*>(part.items.data()),
                         part.items.size() / sizeof(RecordRow));
    if (part.owner != kSelfHolder) {
      batches.push_back({part.owner, nodes_.incarnation(part.owner), some});
    } else if (shard_->apply(kSelfHolder, some).full != 0) {
      return false;
    }
  }
  const TimePoint late = now + kFramePatience;
  transfer_->publish(batches, fence_, Deadline{std::min(deadline.at, late)});
  counters_.publish_frames.fetch_add(batches.size(), std::memory_order_relaxed);
  bool all_taken = true;
  for (const PublishBatch& batch : batches) {
    all_taken = all_taken && batch.answer == PublishAnswer::taken;
    const bool none = batch.answer == PublishAnswer::none;
    if (none && Clock::now() >= late) nodes_.set_slow(batch.peer, Clock::now() + kSlowFor);
  }
  if (all_taken) pool_->mark_published(rows);
  return all_taken;
}

bool Engine::publish_local(Incarnation holder, uint64_t fence, std::span<const RecordRow> rows) {
  const HolderIndex index = nodes_.find({&holder, 1})[0];
  const bool taken = fences_.pass(index, fence, [&] {
    if (nodes_.incarnation(index) != holder) return false;
    const ShardApplied applied = shard_->apply(index, rows);
    return applied.full == 0 && applied.bad == 0;
  });
  counters_.publishes_answered.fetch_add(1, std::memory_order_relaxed);
  return taken;
}

}  // namespace peercached
