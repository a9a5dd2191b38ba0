// Lets `exists` wait for a page: until it comes into our pool, or a record of it to us.
// look_again() is for records that were here and begin to count.
//
// After pages or records were added, came() is called. A waiter registers before it looks, so it
// misses nothing. Without waiters came() costs one atomic addition.
//
// Thread safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <span>

#include "common/clock.h"
#include "common/types.h"

namespace peercached {

class Arrivals {
 public:
  // Waits for one page.
  class Wait {
   public:
    Wait(Arrivals& arrivals, const Digest& digest);
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;
    // Returns when the page may have come, or at that time.
    void until(TimePoint time);

   private:
    friend class Arrivals;
    Arrivals& arrivals_;
    std::multimap<Digest, Wait*>::iterator place_;
    std::condition_variable changed_;
    bool came_ = false;
  };

  void came(std::span<const RecordRow> rows);
  // Any page may have come.
  void look_again();
  // From now on nobody waits.
  void close();
  bool closed() const { return closed_.load(std::memory_order_relaxed); }
  size_t waiting() const { return waiting_.load(std::memory_order_relaxed); }

 private:
  std::mutex mutex_;
  std::multimap<Digest, Wait*> waits_;
  std::atomic<size_t> waiting_{0};
  std::atomic<bool> closed_{false};
};

}  // namespace peercached
