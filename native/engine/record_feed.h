// The latest changes of this node's records, in order, for whoever keeps copies of them
// (engine/copies.h): what came into the pool, what went to the disk only, what is gone.
//
// A position counts changes since the start of this process. Followers ask for what lies behind
// theirs. Who has fallen too far behind, or is new, begins with a scan of the pool instead, and the
// position before that scan.
//
// A change is told a few milliseconds later, with those that come meanwhile: a `set` wakes one
// thread at most, and followers cost as much as their number, not as the sets.
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

  // Until now nobody was told anything: what an earlier start has left may have been removed.
  void open();
  void append(std::span<const RecordRow> rows);
  // All followers begin anew: there are records that it was not told of.
  void forget();

  enum class Told { news, forgotten, closed };
  // Appends all changes behind `position`, and moves it behind them. Waits for one, until the
  // deadline. `forgotten`: that position is too far back, or none of this feed (0 never is); it is
  // moved behind all that was appended. `closed`: or not open yet.
  Told read(uint64_t& position, Deadline deadline, std::vector<RecordRow>& changes);
  // Nobody waits any more.
  void close();

 private:
  bool forgotten(uint64_t position) const;
  void ring();

  const size_t changes_max_;
  mutable std::mutex mutex_;
  std::condition_variable appended_, told_;
  std::vector<RecordRow> changes_;  // change n is at n % changes_max_
  uint64_t end_ = 1;
  uint64_t told_end_ = 1;  // whoever waits is told as soon as it is behind this
  bool followed_ = false;  // somebody has read
  bool ringing_ = false, open_ = false, closed_ = false;
  std::thread bell_;
};

}  // namespace peercached
