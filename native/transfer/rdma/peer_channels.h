// The channels to one incarnation of one peer, by rail: idle, lent to a read, or being connected.
//
// Bounded per rail. Channels are made when first wanted; connecting takes the control plane a
// call to the peer, so whoever wants one waits, by leaving an eventfd that is written when
// something changes. Which rails are relied on: rail_trust.h.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "transfer/peer_counters.h"
#include "transfer/rdma/channel.h"
#include "transfer/rdma/in_flight.h"
#include "transfer/rdma/rail_trust.h"

namespace peercached::rdma {

// The control plane's part: carries `own` to the peer and its answer back.
class Connector {
 public:
  virtual ~Connector() = default;
  // Later, from any thread, exactly once: RdmaEngine::connected or ::refused with this channel's
  // number. `closed`: numbers of channels to the same peer that are no more.
  // False: not now, and no answer will come.
  virtual bool connect(HolderIndex peer, const ChannelEnd& own,
                       std::span<const uint32_t> closed) = 0;
};

class PeerChannels {
 public:
  PeerChannels(HolderIndex peer, Incarnation incarnation,
               std::span<const std::unique_ptr<Rail>> rails, unsigned channels_max,
               Connector& connector, std::atomic<uint32_t>& next_number);
  ~PeerChannels();

  bool closed() const { return closed_.load(std::memory_order_acquire); }

  struct Lease {
    Channel* channel = nullptr;  // the caller gives it back
    bool hope = true;            // without a channel: whether waiting for one makes sense
  };
  // An idle channel on the first rail, from `first` on and around, that works at all. If there is
  // none, one more may be on its way. `waiting`: the caller is among those of wait_with().
  // `patient`: it would also wait for one that is lent.
  Lease lease(uint32_t first_rail, bool waiting, bool patient);
  void give_back(Channel* channel);
  // Whether a read by RDMA makes sense now: some rail that is up is relied on, and is not left
  // alone after an error without a channel left. Asks doubted rails to prove themselves, as lease()
  // does.
  bool usable();
  // It broke, or something is outstanding on it: fences it, and destroys it. If that is the rail's
  // fault its idle channels go, too, and no read uses it for a while (rail_trust.h).
  // `proof_within`: how long it may be silent to be relied on again.
  enum class Fault : uint8_t { none, error, silence };
  void retire(Channel* channel, Fault fault, Clock::duration proof_within = Clock::duration::max());
  // Somebody has waited that long for a channel. Rails on which nothing was heard meanwhile are
  // doubted, if there is another way.
  void doubt_slow_connects(Clock::duration late_after, bool tcp_follows);

  // Something came over this rail, in any read.
  void heard(const Rail& rail, TimePoint when) {
    counters.last_heard.store(when, std::memory_order_relaxed);
    trusts_[rail.index].heard(when);
  }
  // What is on its way from the peer over this rail. Each peer has its own: one that hangs keeps
  // what it was asked for until the deadline, and the others' pages must not wait for that.
  InFlight& in_flight(const Rail& rail) { return in_flight_[rail.index]; }
  // For how long nothing has come of what is outstanding on it, nor else over its rail.
  Clock::duration quiet(const Channel& channel) const;
  // The same, for most of a read that began at `started` and ends now.
  bool silent(const Channel& channel, TimePoint started) const;
  bool relied_on(const Rail& rail) const { return trusts_[rail.index].relied_on(); }
  // Whether another rail than this one is up and relied on.
  bool relied_on_besides(const Rail& rail) const;

  struct Trouble {
    uint32_t rail = 0;
    std::string what;
  };
  // The rails that are up and yet doubted.
  std::vector<Trouble> troubles() const;

  void wait_with(int event_fd);
  void stop_waiting(int event_fd);

  // The control plane's answers. False: no such channel is being connected here.
  bool connected(uint32_t number, ChannelAnswer answer);
  bool refused(uint32_t number, const std::string& why);

  // The rail is out: its channels break off.
  void leave_rail(const Rail& rail);
  // No more channels; those lent break off.
  void close();

  uint32_t size() const;

  PeerCounters counters;

 private:
  enum class State : uint8_t { connecting, proving, idle, lent };
  struct Entry {
    std::shared_ptr<Channel> channel;  // shared only while it is being connected
    uint32_t number = 0;
    State state = State::connecting;
    std::vector<uint32_t> closed;  // that go with its connecting
  };
  using Gone = std::vector<std::shared_ptr<Channel>>;  // to be destroyed outside of the lock

  TimePoint last_heard(const Channel& channel) const;

  // All under the mutex.
  unsigned count(uint32_t rail) const;
  size_t connecting() const;  // on rails that are relied on
  bool proved(uint32_t rail, TimePoint now, Gone& gone);
  std::vector<Entry>::iterator find_proof(uint32_t rail);
  void take_idle(uint32_t rail, Gone& gone);
  void end(const Rail* rail, Gone& gone);
  void begin_connect(uint32_t rail);
  void back_off(uint32_t rail, const std::string& why);
  void doubt(uint32_t rail, const std::string& why,
             Clock::duration proof_within = Clock::duration::max());
  void not_connected(uint32_t rail, const std::string& why);
  bool others_relied_on(const Rail& rail) const;
  std::vector<Entry>::iterator find(const Channel* channel);
  std::vector<Entry>::iterator find_connecting(uint32_t number);
  std::shared_ptr<Channel> take(std::vector<Entry>::iterator entry);
  void wake_one();  // a channel has become idle
  void wake_all();

  const HolderIndex peer_;
  const Incarnation incarnation_;
  const std::span<const std::unique_ptr<Rail>> rails_;
  const unsigned channels_max_;  // per rail
  Connector& connector_;
  std::atomic<uint32_t>& next_number_;
  std::atomic<bool> closed_{false};
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  std::vector<RailTrust> trusts_;         // by rail
  std::vector<InFlight> in_flight_;       // by rail
  std::vector<uint32_t> closed_numbers_;  // that the peer has not been told of
  std::vector<int> waiters_;              // eventfds
};

}  // namespace peercached::rdma
