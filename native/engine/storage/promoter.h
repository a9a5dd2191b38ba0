// Reads pages from disk into the pool: for a caller that waits, or to warm pages that may be wanted
// soon.
//
//   find -> take budget -> reserve a slot -> read into it, verified -> commit, tell -> pinned
//
// A page is read once for all callers: the first one reserves its slot, the others wait for it.
// Promoted pages stay pinned until their `Promotions` end, so later pages of a batch never evict
// earlier ones. A batch that finds no more room stops there, and the rest is `not_now`. Promotions
// pin at most a quarter of the pool. A batch takes its share at once or waits, so batches cannot
// deadlock. Waiting callers go first: warming gets half of the budget, and none while a caller
// waits for it.
//
// Thread safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "engine/storage/disk_pages.h"
#include "engine/storage/namespaces.h"
#include "pool/pool.h"

namespace peercached {

enum class Urgency : uint8_t { somebody_waits, warming };

enum class PromoteStatus : uint8_t {
  pending,  // internal
  in_pool,  // pinned; it may have been there before
  absent,   // not on this disk, or no longer
  not_now,  // no room, or another caller's promotion of it failed
  late,     // the deadline passed
  failed,   // the disk failed, or does not answer
};

inline bool disk_gave_nothing(PromoteStatus status) {
  return status == PromoteStatus::late || status == PromoteStatus::failed;
}

struct PromoterStats {
  uint64_t promoted = 0, promoted_bytes = 0;  // read from disk into the pool
  uint64_t warmed = 0;                        // of these: nobody waited for them
  uint64_t not_now = 0, late = 0, failed = 0, absent = 0;
  uint64_t warm_queued = 0, warm_dropped = 0;
};

class Promoter;

// The pages of one batch, pinned, and their share of the budget. The destructor releases both.
class Promotions {
 public:
  ~Promotions();
  Promotions(Promotions&& other) noexcept
      : pages(std::move(other.pages)),
        statuses(std::move(other.statuses)),
        promoter_(other.promoter_),
        budget_bytes_(std::exchange(other.budget_bytes_, 0)) {}
  Promotions& operator=(Promotions&&) = delete;

  std::vector<PinnedPage> pages;  // in the batch's order; empty unless in_pool
  std::vector<PromoteStatus> statuses;

 private:
  friend class Promoter;
  explicit Promotions(Promoter& promoter) : promoter_(promoter) {}
  Promoter& promoter_;
  uint64_t budget_bytes_ = 0;
};

class Promoter {
 public:
  Promoter(Pool& pool, NamespaceTable& namespaces, DiskPages& disk);
  ~Promoter();  // ends the warming; no promote() may be running

  Promotions promote(std::span<const Digest> digests, Urgency urgency, Deadline deadline);
  // Promotes pages on disk when there is time, in this order. Never waits. Queues at most a quarter
  // of the pool, so that the last pages do not evict the first. The rest is dropped.
  void warm(std::span<const Digest> digests);

  // The most that one batch should ask for.
  uint64_t batch_bytes_max() const { return batch_bytes_max_; }
  PromoterStats stats() const;

 private:
  friend class Promotions;
  struct Batch;

  uint64_t take_budget(uint64_t bytes, Urgency urgency, Deadline deadline);  // 0: not in time
  void give_budget(uint64_t bytes);
  void warm_in_background();

  Pool& pool_;
  NamespaceTable& namespaces_;
  DiskPages& disk_;
  const uint64_t budget_bytes_max_, batch_bytes_max_;

  mutable std::mutex mutex_;
  std::condition_variable room_;
  uint64_t budget_used_ = 0;
  unsigned readers_waiting_ = 0;
  std::condition_variable warm_wake_;
  std::deque<PageRequest> warm_queue_;
  std::unordered_set<Digest, DigestHash> warm_queued_;
  uint64_t warm_bytes_ = 0;
  PromoterStats counters_;
  std::atomic<bool> stopping_{false};
  std::thread warmer_;  // none without a disk tier
};

}  // namespace peercached
