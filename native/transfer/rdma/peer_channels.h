// The channels to one incarnation of one peer, by rail: idle, lent to a read, or being connected.
//
// Bounded per rail. A channel is made when it is first wanted. The control plane must call the peer
// to connect it, so a read that wants one waits. It leaves an eventfd, which is written when
// something changes. RailTrust (rail_trust.h) decides which rails are relied on.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "transfer/peer_counters.h"
#include "transfer/provider.h"
#include "transfer/rdma/channel.h"
#include "transfer/rdma/in_flight.h"
#include "transfer/rdma/rail_trust.h"

namespace peercached::rdma {

// A rail that is up but not relied on for a peer, and the reason.
struct RailTrouble {
  HolderIndex peer = kNoHolder;
  uint32_t rail = 0;
  std::string what;
};

class PeerChannels {
 public:
  PeerChannels(HolderIndex peer, Incarnation incarnation,
               std::span<const std::unique_ptr<Rail>> rails, unsigned channels_max,
               ChannelRequests& requests, std::atomic<uint32_t>& next_number);
  ~PeerChannels();

  bool closed() const { return closed_.load(std::memory_order_acquire); }

  struct Lease {
    Channel* channel = nullptr;  // the caller must give it back
    bool hope = true;            // without a channel: whether to wait for one
  };
  // Lends an idle channel on the first working rail, in a circle from `first_rail` on. If there is
  // none, may begin to connect one. `waiting`: the caller has called wait_with(). `patient`: the
  // caller would also wait for a lent channel.
  Lease lease(uint32_t first_rail, bool waiting, bool patient);
  void give_back(Channel* channel);
  // Whether an RDMA read makes sense now: a rail is up and relied on, and has a channel or may
  // connect one. Like lease(), continues the proofs of doubted rails.
  bool usable();
  bool proving() const;  // whether test READs are out; usable() looks whether they came in time
  // Fences and destroys a channel that broke or has chains in flight. If the rail is at fault, its
  // idle channels go, too, and no read uses it for a while (rail_trust.h). `proof_within`: time
  // limit for the rail's proof.
  enum class Fault : uint8_t { none, error, silence };
  void retire(Channel* channel, Fault fault, Clock::duration proof_within = Clock::duration::max());
  // A read has waited this long for a channel. Doubts the rails that are still connecting and were
  // silent meanwhile, if there is another way.
  void doubt_slow_connects(Clock::duration late_after, bool tcp_follows);

  // Data came over this rail, in any read.
  void heard(const Rail& rail, TimePoint when) {
    counters.last_heard.store(when, std::memory_order_relaxed);
    trusts_[rail.index].heard(when);
  }
  // The bytes in flight from the peer over this rail. Each peer has its own bound: a hung peer
  // keeps its share until the deadline, and other peers' pages must not wait for that.
  InFlight& in_flight(const Rail& rail) { return in_flight_[rail.index]; }
  // How long neither this channel nor its rail has received anything.
  Clock::duration quiet(const Channel& channel) const { return Clock::now() - last_heard(channel); }
  // Whether that was most of a read that began at `started` and ends now.
  bool silent(const Channel& channel, TimePoint started) const;
  bool relied_on(const Rail& rail) const { return trusts_[rail.index].relied_on(); }
  // Whether any other rail is up and relied on.
  bool relied_on_besides(const Rail& rail) const;

  void add_troubles(std::vector<RailTrouble>& all) const;

  void wait_with(int event_fd);
  void stop_waiting(int event_fd);

  // The control plane's answers. False: no channel with this number is being connected.
  bool connected(uint32_t number, ChannelAnswer answer);
  bool refused(uint32_t number, const std::string& why);

  // The rail is down: all its channels break off.
  void leave_rail(const Rail& rail);
  // Makes no more channels; lent ones break off.
  void close();

  uint32_t size() const;

  PeerCounters counters;

 private:
  enum class State : uint8_t { connecting, proving, idle, lent };
  struct Entry {
    std::shared_ptr<Channel> channel;  // shared only while being connected
    uint32_t number = 0;
    State state = State::connecting;
    std::vector<uint32_t> closed;  // sent with its connect
  };
  using Gone = std::vector<std::shared_ptr<Channel>>;  // to destroy outside of the lock

  TimePoint last_heard(const Channel& channel) const {
    return std::max(channel.quiet_since(), trusts_[channel.rail().index].heard_at());
  }

  unsigned count(uint32_t rail) const REQUIRES(mutex_);
  size_t connecting() const REQUIRES(mutex_);  // on rails that are relied on
  bool proved(uint32_t rail, TimePoint now, Gone& gone) REQUIRES(mutex_);
  // The first channel of the rail in that state, or the end.
  std::vector<Entry>::iterator find(uint32_t rail, State state) REQUIRES(mutex_);
  bool has(uint32_t rail, State state) REQUIRES(mutex_) {
    return find(rail, state) != entries_.end();
  }
  void take_idle(uint32_t rail, Gone& gone) REQUIRES(mutex_);
  void end(const Rail* rail, Gone& gone) REQUIRES(mutex_);
  void begin_connect(uint32_t rail) REQUIRES(mutex_);
  void back_off(uint32_t rail, const std::string& why) REQUIRES(mutex_);
  void doubt(uint32_t rail, const std::string& why,
             Clock::duration proof_within = Clock::duration::max()) REQUIRES(mutex_);
  void not_connected(uint32_t rail, const std::string& why) REQUIRES(mutex_);
  bool others_relied_on(const Rail& rail) const REQUIRES(mutex_);
  std::vector<Entry>::iterator find(const Channel* channel) REQUIRES(mutex_);
  std::vector<Entry>::iterator find_connecting(uint32_t number) REQUIRES(mutex_);
  std::shared_ptr<Channel> take(std::vector<Entry>::iterator entry) REQUIRES(mutex_);
  void wake_one() REQUIRES(mutex_);  // a channel has become idle
  void wake_all() REQUIRES(mutex_);

  const HolderIndex peer_;
  const Incarnation incarnation_;
  const std::span<const std::unique_ptr<Rail>> rails_;
  const unsigned channels_max_;  // per rail
  ChannelRequests& requests_;
  std::atomic<uint32_t>& next_number_;
  std::atomic<bool> closed_{false};
  mutable Mutex mutex_;
  std::vector<Entry> entries_ GUARDED_BY(mutex_);
  std::vector<RailTrust> trusts_;                            // by rail
  std::vector<InFlight> in_flight_;                          // by rail
  std::vector<uint32_t> closed_numbers_ GUARDED_BY(mutex_);  // that the peer does not know of yet
  std::vector<int> waiters_ GUARDED_BY(mutex_);              // eventfds
};

}  // namespace peercached::rdma
