// Follows the record feeds of peers (docs/protocol.md, "follow"): one thread, and one channel per
// peer. On each channel a question waits at the holder until there is news. Only the 128 peers with
// the lowest indices are followed. Questions and answers carry signs of life (life_signs.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <thread>

#include "common/clock.h"
#include "common/event_fd.h"
#include "common/mutex.h"
#include "common/types.h"
#include "transfer/tcp/channel.h"
#include "transfer/tcp/life_signs.h"

namespace peercached {

// Receives the feeds. Called from the follower's thread.
class FeedReader {
 public:
  virtual ~FeedReader() = default;

  // The follower asks a holder now. The returned number comes back in is_up_to_date().
  virtual uint64_t asks() = 0;
  // The holder starts over: all earlier records are void. False: no room for another holder.
  virtual bool begins(HolderIndex holder) = 0;
  // Changes in order; some may be repeated after is_lost(). False: no room for the holder's
  // records.
  virtual bool changes(HolderIndex holder, std::span<const RecordRow> rows) = 0;
  // The answer is complete: it covers all changes at the holder before `asked_at`.
  virtual void is_up_to_date(HolderIndex holder, uint64_t asked, TimePoint asked_at) = 0;
  // The channel broke. The next one continues from the last position, or starts over.
  virtual void is_lost(HolderIndex holder) = 0;
};

namespace tcp {

class Follower {
 public:
  // `wait`: how long a question waits for news. Without news, signs of life come at this interval.
  Follower(FeedReader& reader, LifeSigns& signs, const TcpEngineConfig& config,
           std::chrono::milliseconds wait);
  ~Follower();
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  // Follows the holder. Replaces the channel under that index if `endpoint` is another. Throws
  // std::invalid_argument for a token of a wrong length.
  void follow(HolderIndex holder, const PeerEndpoint& endpoint);
  // No callback mentions the holder after this returns.
  void leave(HolderIndex holder);

 private:
  class Lane;

  void run();

  FeedReader& reader_;
  LifeSigns& signs_;
  const Dial dial_;
  const std::chrono::milliseconds wait_;
  Mutex mutex_;
  std::map<HolderIndex, std::unique_ptr<Lane>> lanes_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  EventFd wake_;
  std::thread thread_;
};

}  // namespace tcp
}  // namespace peercached
