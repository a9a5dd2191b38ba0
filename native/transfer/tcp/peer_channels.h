// The channels to one incarnation of one peer: those idle, and those lent to a read.
//
// Bounded: a read that finds all of them lent waits, by leaving an eventfd that is written
// when one comes back. It never blocks here, so that it can go on with its other peers.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "transfer/peer_counters.h"
#include "transfer/tcp/channel.h"

namespace peercached::tcp {

class PeerChannels {
 public:
  PeerChannels(Dial dial, unsigned channels_max);
  ~PeerChannels();

  const Dial& dial() const { return dial_; }
  bool closed() const { return closed_.load(std::memory_order_acquire); }

  // An idle channel, or else one that has just begun to connect; nullptr when all are lent, or
  // after close(). The caller gives it back.
  Channel* lease();
  // As lease(), in place of `dead`, whose peer went away while it was idle: the other idle ones
  // are of the same age and go too. Never nullptr but after close().
  Channel* replace(Channel* dead);
  // `reusable`: nothing is outstanding on it. One that is still connecting may be, too: the
  // read that wanted it got all its pages by others, and the next one will find it ready.
  void give_back(Channel* channel, bool reusable);

  // While the caller waits for a channel; one write per channel that comes back.
  void wait_with(int event_fd);
  void stop_waiting(int event_fd);

  // No more channels; reads in flight find theirs shut.
  void close();
  uint32_t size() const;

  PeerCounters counters;

 private:
  void forget(Channel* channel);
  void wake_waiters();

  const Dial dial_;
  const unsigned channels_max_;
  std::atomic<bool> closed_{false};
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Channel>> all_;
  std::vector<Channel*> idle_;
  std::vector<int> waiters_;  // eventfds
};

}  // namespace peercached::tcp
