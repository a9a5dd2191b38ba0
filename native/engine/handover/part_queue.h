// Queues pages for another pool, in parts of one holder, namespace and time. Thread safe.
#pragma once

#include <atomic>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "common/types.h"
#include "engine/handover/handover.h"

namespace peercached {

class PartQueue {
 public:
  // A full queue drops pages until take().
  explicit PartQueue(size_t pages_max) : pages_max_(pages_max) {}

  // `learnt_at`: see Handover.
  void add(const Digest& namespace_id, uint64_t epoch, std::span<const RecordRow> rows,
           uint64_t learnt_at = 0);
  bool any() const;
  // While it is off, do not add pages: nobody wants them.
  void set_on(bool on) { on_.store(on, std::memory_order_relaxed); }
  bool on() const { return on_.load(std::memory_order_relaxed); }
  // The holders of the waiting pages.
  std::vector<HolderIndex> holders() const;
  // All pages since the last call, except those too large to hand over.
  std::vector<std::pair<HolderIndex, Handover>> take();

 private:
  struct Page {
    Digest namespace_id;
    uint64_t epoch;
    RecordRow row;
    uint64_t learnt_at;
  };
  const size_t pages_max_;
  std::atomic<bool> on_{false};
  mutable std::mutex mutex_;
  std::vector<Page> pages_;
};

}  // namespace peercached
