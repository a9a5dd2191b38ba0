// The channels to one incarnation of one peer: idle ones, and those lent to a read.
//
// Bounded: if all channels are lent, a read waits. It leaves an eventfd, which is written when a
// channel comes back. It never blocks here, so that it can go on with its other peers.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "common/mutex.h"
#include "transfer/peer_counters.h"
#include "transfer/tcp/channel.h"

namespace peercached::tcp {

class PeerChannels {
 public:
  PeerChannels(Dial dial, unsigned channels_max);
  ~PeerChannels();

  const Dial& dial() const { return dial_; }
  bool closed() const { return closed_.load(std::memory_order_acquire); }

  // Lends an idle channel, or one that just begins to connect. Returns nullptr when all are lent,
  // or after close(). The caller must give it back.
  Channel* lease();
  // Lends a fresh channel in place of `dead`, which died while idle. Closes all idle channels: they
  // are as old, so probably dead too. Returns nullptr only after close().
  Channel* replace(Channel* dead);
  // `reusable`: no request is in flight on it. It may still be connecting: the read got all its
  // pages over other channels, and the next read will find it ready.
  void give_back(Channel* channel, bool reusable);

  // Registers an eventfd while the caller waits. Each channel that comes back causes one write.
  void wait_with(int event_fd);
  void stop_waiting(int event_fd);

  // Lends no more channels, and shuts those of reads in flight.
  void close();
  uint32_t size() const;

  PeerCounters counters;

 private:
  void forget(Channel* channel) REQUIRES(mutex_);
  void wake_waiters() REQUIRES(mutex_);

  const Dial dial_;
  const unsigned channels_max_;
  std::atomic<bool> closed_{false};
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Channel>> all_ GUARDED_BY(mutex_);
  std::vector<Channel*> idle_ GUARDED_BY(mutex_);
  std::vector<int> waiters_ GUARDED_BY(mutex_);  // eventfds
};

}  // namespace peercached::tcp
