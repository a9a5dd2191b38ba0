// Follows the record feeds of peers (docs/protocol.md, "follow"): one thread, and one channel per
// peer. On each channel a question waits at the holder until there is news. Questions and answers
// carry signs of life (life_signs.h).
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
#include "directory/record_table.h"
#include "transfer/tcp/channel.h"
#include "transfer/tcp/life_signs.h"

namespace peercached::tcp {

class Follower {
 public:
  // `wait`: how long a question waits for news. Without news, signs of life come at this interval.
  // `watcher` hears of holders that cannot be reached, or do not answer.
  Follower(RecordTable& table, LifeSigns& signs, PeerWatcher& watcher,
           const TcpEngineConfig& config, std::chrono::milliseconds wait);
  ~Follower();
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  // Follows the holder. Replaces the channel under that index if `endpoint` is another. Throws
  // std::invalid_argument for a token of a wrong length.
  void follow(HolderIndex holder, const PeerEndpoint& endpoint);
  // Follows only so many, those with the lowest indices.
  void follow_at_most(unsigned holders);
  // The table hears nothing of the holder after this returns.
  void leave(HolderIndex holder);
  // Joins the thread, and closes all channels. Only one thread may call it.
  void stop();

 private:
  class Lane;

  void run();

  RecordTable& table_;
  LifeSigns& signs_;
  PeerWatcher& watcher_;
  const Dial dial_;
  const std::chrono::milliseconds wait_;
  Mutex mutex_;
  std::map<HolderIndex, std::unique_ptr<Lane>> lanes_ GUARDED_BY(mutex_);
  unsigned holders_max_ GUARDED_BY(mutex_) = 0;
  bool stopping_ GUARDED_BY(mutex_) = false;
  EventFd wake_;
  std::thread thread_;
};

}  // namespace peercached::tcp
