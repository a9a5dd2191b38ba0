// Follows the record feeds of peers (docs/protocol.md, "follow"): one thread and a channel to each,
// on which a question waits at the holder until there is news. Of more than 128 peers those with
// the lowest indices are followed. Questions and answers carry signs of life (life_signs.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "common/clock.h"
#include "common/types.h"
#include "transfer/tcp/channel.h"
#include "transfer/tcp/life_signs.h"

namespace peercached {

// What comes of it. From the follower's thread.
class FeedReader {
 public:
  virtual ~FeedReader() = default;

  // A holder is asked now; the number comes back with its whole answer.
  virtual uint64_t asks() = 0;
  // What it told before is void. False: no room for another holder.
  virtual bool begins(HolderIndex holder) = 0;
  // In order; some may come again after is_lost(). False: no room for its records.
  virtual bool changes(HolderIndex holder, std::span<const RecordRow> rows) = 0;
  // Its answer is whole. It knew all that had happened there until it was asked.
  virtual void is_up_to_date(HolderIndex holder, uint64_t asked, TimePoint asked_at) = 0;
  // Its channel broke; it may go on where it was, or begin anew.
  virtual void is_lost(HolderIndex holder) = 0;
};

namespace tcp {

class Follower {
 public:
  // `wait`: how long a question waits for news. Signs of life come that often, where nothing
  // happens.
  Follower(FeedReader& reader, LifeSigns& signs, std::chrono::milliseconds wait);
  ~Follower();
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  // In place of what was followed under that index, if it is another.
  void follow(HolderIndex holder, Dial dial);
  // The reader hears nothing of it any more.
  void leave(HolderIndex holder);

 private:
  class Lane;

  void run();
  void wake() const;

  FeedReader& reader_;
  LifeSigns& signs_;
  const std::chrono::milliseconds wait_;
  std::mutex mutex_;
  std::map<HolderIndex, std::unique_ptr<Lane>> lanes_;
  bool stopping_ = false;
  int wake_fd_ = -1;
  std::thread thread_;
};

}  // namespace tcp
}  // namespace peercached
