// One channel at work for one read call. It claims slices, keeps up to kChainsPerChannel chains in
// flight and hands on landed slices. The reading thread drives it; it blocks only to fence.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "transfer/rdma/peer_read.h"

namespace peercached::rdma {

class Lane {
 public:
  // Prefers `first_rail`; `wake_fd` is written when it may go on. The `main` lane of a read waits
  // for a lent channel to come back. Other lanes help only while channels are to spare.
  Lane(ReadCall& call, PeerRead& peer, uint32_t first_rail, bool main, int wake_fd);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  bool finished() const { return finished_; }
  // A chain is in flight: to sleep, arm() and wait for fd().
  bool reading() const { return channel_ != nullptr && channel_->outstanding() != 0; }
  int fd() const { return channel_->event_fd(); }
  void arm() { channel_->arm(); }
  void take_events() { channel_->take_events(); }

  // Goes on as far as possible now. False: nothing could be done.
  bool proceed();
  // When a lane that waits for a channel must check again, even without a wake-up.
  TimePoint waits_until() const;
  // Makes everything in flight end with errors soon. Call it for all lanes before abandon(). Also
  // notes whether the rail was silent until the deadline.
  void break_off();
  // Deadline or fence: when this returns, nothing is written any more.
  void abandon();

 private:
  struct Chain {
    std::vector<Slice> slices;
    uint64_t bytes = 0;  // taken from the rail's InFlight for this chain
    TimePoint posted_at{};
  };

  InFlight& in_flight() { return peer_.channels().in_flight(channel_->rail()); }
  bool wants_room() const { return place_.state != InFlight::Place::State::none; }
  bool find_channel();
  bool post();
  bool registered(RegisteredMemory& region, std::span<const Slice> slices) const;
  void harvest();
  void broken();
  bool another_way() const;
  bool late() const;
  bool lacked_keys(std::span<const Slice> wanted);
  void give_way();
  void put_back_all(bool broke);
  void lose_channel(PeerChannels::Fault fault,
                    Clock::duration proof_within = Clock::duration::max());
  void end();

  ReadCall& call_;
  PeerRead& peer_;
  uint32_t first_rail_;
  const bool main_;
  const int wake_fd_;
  Channel* channel_ = nullptr;
  bool gave_way_ = false;
  bool waiting_ = false;
  TimePoint waiting_since_{};  // or since it last reported the wait as too long
  InFlight::Place place_;      // in the queue for the channel's rail
  bool finished_ = false;
  bool silent_ = false;
  std::array<Chain, kChainsPerChannel> chains_;  // oldest first
  size_t chains_count_ = 0;
};

}  // namespace peercached::rdma
