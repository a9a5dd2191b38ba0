// The latest changes of this node's records, in order, for nodes that keep copies
// (engine/copies.h): a page came into the pool, is on the disk only, or is gone.
//
// A position counts changes since this process started. Followers ask for the changes behind their
// position. A follower that is new or too far behind begins with a scan of the pool instead, and
// with the position before that scan.
//
// Followers hear of a change some milliseconds later, together with the next ones. So a `set` wakes
// at most one thread, and the cost grows with the followers, not with the sets.
//
// Thread safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/types.h"

namespace peercached {

class RecordFeed {
 public:
  explicit RecordFeed(size_t changes_max);
  ~RecordFeed();
  RecordFeed(const RecordFeed&) = delete;
  RecordFeed& operator=(const RecordFeed&) = delete;

  // Followers hear nothing before this: pages of an earlier start may have been removed.
  void open();
  void append(std::span<const RecordRow> rows);
  // Makes all followers begin anew, because some records were not appended.
  void forget();

  enum class Told { news, forgotten, closed };
  // Waits until the deadline for changes behind `position`, appends them and moves `position`
  // behind them. `forgotten`: the position is too far back, or not of this feed (0 never is). It
  // moves to the end. `closed`: closed, or not open yet.
  Told read(uint64_t& position, Deadline deadline, std::vector<RecordRow>& changes);
  // Ends all waiting calls.
  void close();

 private:
  bool forgotten(uint64_t position) const;
  void ring();

  const size_t changes_max_;
  mutable std::mutex mutex_;
  std::condition_variable appended_, told_;
  std::vector<RecordRow> changes_;  // change n is at n % changes_max_
  uint64_t end_ = 1;
  uint64_t told_end_ = 1;  // followers below this position are woken
  bool followed_ = false;  // read() was called
  bool ringing_ = false, open_ = false, closed_ = false;
  std::thread bell_;
};

}  // namespace peercached
