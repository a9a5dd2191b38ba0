// The reader's end of one connection: an RC queue pair with its own completion queue and a little
// registered scratch memory for headers. Used by one read at a time.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>

#include "transfer/rdma/chain.h"
#include "transfer/rdma/memory_table.h"
#include "transfer/rdma/rail.h"

namespace peercached::rdma {

class Channel {
 public:
  // Makes a queue pair in state INIT. Throws VerbsError.
  Channel(Rail& rail, uint32_t number);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  Rail& rail() const { return rail_; }
  const ChannelEnd& own_end() const { return own_; }
  const PoolAccess& pool() const { return holder_.pool; }
  // Throws VerbsError, or std::runtime_error if the two ends do not match.
  void connect(ChannelAnswer holder);

  TimePoint connected_at() const { return connected_at_; }
  // Whether the holder had registered the memory of these slices when the channel was connected.
  bool has_keys(std::span<const Slice> slices, std::span<const ReadOp> ops) const;
  // Posts a chain; has_keys() of its slices is true. All its slices complete together. `memory`
  // holds all destinations, already ready().
  void post(std::span<const Slice> slices, std::span<const ReadOp> ops, RegisteredMemory& memory);
  // Tests the rail with two READs from the start of the pool: one as long as a slot's header, one
  // that fills many packets. The data is not used. No chain may be in flight. Throws VerbsError.
  void ask();
  bool answered();  // both READs came back; trouble() if they never will
  TimePoint asked_at() const { return asked_at_; }
  std::string no_proof() const;  // the reason why the test failed, in words

  size_t outstanding() const { return posted_ - completed_; }
  bool room() const { return posted_ - released_ < kChainsPerChannel; }

  // Polls for completions. Returns the number of chains verified since the last call. After an
  // error, which trouble() names, no chain ends well.
  size_t poll();
  const std::string& trouble() const { return trouble_; }
  bool unanswered() const { return unanswered_; }  // trouble: the other side did not answer
  // Since when the READs in flight have had no completion.
  TimePoint quiet_since() const { return quiet_since_; }
  // The headers of the `index`-th slice of the oldest verified chain that was not released.
  const SlotHeader& before(size_t index) const { return scratch_of(released_).before[index]; }
  const SlotHeader& after(size_t index) const { return scratch_of(released_).after[index]; }
  void release() { ++released_; }  // the caller is done with that chain's headers

  // To sleep until something completes: arm, poll once more, then wait for event_fd.
  int event_fd() const { return events_->fd; }
  void arm();
  void take_events();

  // Makes everything in flight end with errors soon. Any thread may call it.
  void break_off();
  // When this returns, the device writes nothing any more. The channel is of no further use.
  void fence();

 private:
  // Headers as they land: read with the payload, and again after it.
  struct Scratch {
    std::array<SlotHeader, kChainSlicesMax> before, after;
  };
  // The holder's addresses of a chain's headers, for the second look.
  struct Proof {
    struct Header {
      uint64_t address;
      uint32_t rkey;
    };
    std::array<Header, kChainSlicesMax> headers;
    size_t count = 0;
  };
  class Requests;
  Scratch& scratch_of(uint64_t chain) const { return scratch_[chain % kChainsPerChannel]; }
  Proof& proof_of(uint64_t chain) { return proofs_[chain % kChainsPerChannel]; }
  // Posts the requests with one doorbell; only the last one is signalled.
  void ring(Requests& requests, uint64_t what);
  void post_proof(uint64_t chain);

  Rail& rail_;
  std::unique_ptr<Scratch[]> scratch_;
  std::array<Proof, kChainsPerChannel> proofs_;
  Registration scratch_key_;
  std::unique_ptr<std::byte[]> asked_for_;  // destination of ask()
  Registration asked_key_;
  CompletionEvents events_;
  CompletionQueue queue_;
  QueuePair qp_;
  ChannelEnd own_;
  ChannelAnswer holder_;
  uint64_t posted_ = 0, landed_ = 0, completed_ = 0, released_ = 0;  // numbers of chains
  uint64_t rung_ = 0;     // number of the last doorbell, also the wr_id of its signalled request
  uint64_t gave_up_ = 0;  // the last doorbell that completed after trouble began
  TimePoint quiet_since_{};
  TimePoint asked_at_{}, connected_at_{};
  bool armed_ = false;
  unsigned unacknowledged_ = 0;
  std::string trouble_;
  bool unanswered_ = false;
};

}  // namespace peercached::rdma
