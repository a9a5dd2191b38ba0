// One channel at work for one read call: claims slices, posts chains two deep, hands on what
// has landed. Driven by the thread that reads; never blocks but to fence.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "transfer/rdma/peer_read.h"

namespace peercached::rdma {

class Lane {
 public:
  // Prefers `first_rail`; waits for a channel by `wake_fd`. The `main` one of a read takes its
  // turn; others only help while there are channels to spare.
  Lane(ReadCall& call, PeerRead& peer, uint32_t first_rail, bool main, int wake_fd);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  bool finished() const { return finished_; }
  // Something is outstanding: sleep on fd(), after arm().
  bool reading() const { return channel_ != nullptr && channel_->outstanding() != 0; }
  int fd() const { return channel_->event_fd(); }
  void arm() { channel_->arm(); }
  void take_events() { channel_->take_events(); }

  // Does what can be done now; false if that was nothing.
  bool proceed();
  // When one that waits for a channel has to be looked at again although nothing happened.
  TimePoint waits_until() const;
  // What is outstanding will end with errors soon: before abandon(), for all lanes at once. Here it
  // is seen whether the rail was silent until the deadline.
  void break_off();
  // Deadline or fence: nothing is written any more when this returns.
  void abandon();

 private:
  struct Chain {
    std::vector<Slice> slices;
    uint64_t bytes = 0;  // of the rail's that are taken for it
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
  TimePoint waiting_since_{};  // or since it was last found to be late
  InFlight::Place place_;      // among those who post to the channel's rail
  bool finished_ = false;
  bool silent_ = false;
  std::array<Chain, kChainsPerChannel> chains_;  // oldest first
  size_t chains_count_ = 0;
};

}  // namespace peercached::rdma
