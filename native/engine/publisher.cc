#include "engine/publisher.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace peercached {

void Publisher::tell(std::span<const RecordRow> rows) {
  feed_.append(rows);
  if (rows.empty() || store_alone(rows)) return;
  parts_.control.tell(std::as_bytes(rows));
}

bool Publisher::store_alone(std::span<const RecordRow> rows) {
  if (!parts_.directory.alone()) return false;
  parts_.directory.shard().apply(kSelfHolder, rows);
  parts_.pool.mark_published(rows);
  return true;
}

bool Publisher::send_in_frames(std::span<const RecordRow> rows, Deadline deadline) {
  const TimePoint now = Clock::now();
  // The ring first: a new ring closes all owners before it is set.
  const std::shared_ptr<const Ring> ring = parts_.directory.ring();
  if (!ring) return false;
  const std::vector<Ring::Part> parts =
      ring->split(std::as_bytes(rows), sizeof(RecordRow), /*first_only=*/false);
  const bool all_open = std::all_of(parts.begin(), parts.end(), [&](const Ring::Part& part) {
    return parts_.nodes.open_owner(part.owner) &&
           (part.owner == kSelfHolder ||
            (parts_.nodes.readable(part.owner) && !parts_.nodes.slow(part.owner, now)));
  });
  if (parts.empty() || !all_open) return false;

  std::vector<PublishBatch> batches;
  for (const Ring::Part& part : parts) {
    const std::span some(reinterpret_cast<const RecordRow*>(part.items.data()),
                         part.items.size() / sizeof(RecordRow));
    if (part.owner != kSelfHolder) {
      batches.push_back({part.owner, parts_.nodes.incarnation(part.owner), some});
    } else if (parts_.directory.shard().apply(kSelfHolder, some).full != 0) {
      return false;
    }
  }
  const TimePoint late = now + kFramePatience;
  parts_.transfer.publish(batches, fence_, Deadline{std::min(deadline.at, late)});
  parts_.counters.publish_frames.fetch_add(batches.size(), std::memory_order_relaxed);
  bool all_taken = true;
  for (const PublishBatch& batch : batches) {
    all_taken = all_taken && batch.answer == PublishAnswer::taken;
    const bool none = batch.answer == PublishAnswer::none;
    if (none && Clock::now() >= late) parts_.nodes.set_slow(batch.peer, Clock::now() + kSlowFor);
  }
  if (all_taken) parts_.pool.mark_published(rows);
  return all_taken;
}

}  // namespace peercached
