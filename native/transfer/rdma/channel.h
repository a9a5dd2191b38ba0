// The reader's end of one connection: an RC queue pair with its own completion queue and a
// little registered scratch memory for headers. Used by one read at a time.
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
  // A queue pair in state INIT. Throws VerbsError.
  Channel(Rail& rail, uint32_t number);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  Rail& rail() const { return rail_; }
  const ChannelEnd& own_end() const { return own_; }
  uint32_t holder_qpn() const { return holder_.end.qpn; }
  const PoolAccess& pool() const { return holder_.pool; }
  // Throws VerbsError, std::invalid_argument.
  void connect(ChannelAnswer holder);

  // Posts a chain; its slices end together. `memory` holds all destinations, and they are ready().
  void post(std::span<const Slice> slices, std::span<const ReadOp> ops, RegisteredMemory& memory);
  // READs a header of the pool and then as much as makes full packets, for nobody: whether both
  // come back tells whether the rail works. Of a channel with nothing outstanding. Throws
  // VerbsError.
  void ask();
  bool answered();  // they came; trouble() if they never will
  TimePoint asked_at() const { return asked_at_; }
  std::string no_proof() const;  // what has not come of it, in words

  size_t outstanding() const { return posted_ - completed_; }
  bool room() const { return posted_ - released_ < kChainsPerChannel; }

  // Looks for completions: how many chains have landed and been seen again since the last
  // call. An error is in trouble(), and then nothing more ends well.
  size_t poll();
  const std::string& trouble() const { return trouble_; }
  bool unanswered() const { return unanswered_; }  // the trouble: the other side did not answer
  // Since when nothing has come of what is outstanding.
  TimePoint quiet_since() const { return quiet_since_; }
  // The headers of the `index`-th slice of the oldest chain that ended well and was not released.
  const SlotHeader& before(size_t index) const;
  const SlotHeader& after(size_t index) const;
  void release();  // that chain's headers are no longer wanted

  // Sleeping until something completes: arm, poll once more, then wait for event_fd.
  int event_fd() const { return events_->fd; }
  void arm();
  void take_events();

  // From another thread, too: what is outstanding ends with errors soon.
  void break_off();
  // Nothing is written any more when this returns. The channel is of no use then.
  void fence();

 private:
  // What the device writes to, and where the headers are to be seen again.
  struct Scratch {
    std::array<SlotHeader, kChainSlicesMax> before, after;
  };
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
  // Posts them as one, the last one signalled.
  void ring(Requests& requests, uint64_t what);
  void post_proof(uint64_t chain);

  Rail& rail_;
  std::unique_ptr<Scratch[]> scratch_;
  std::array<Proof, kChainsPerChannel> proofs_;
  Registration scratch_key_;
  std::unique_ptr<std::byte[]> asked_for_;  // where what is asked for lands
  Registration asked_key_;
  CompletionEvents events_;
  CompletionQueue queue_;
  QueuePair qp_;
  ChannelEnd own_;
  ChannelAnswer holder_;
  uint64_t posted_ = 0, landed_ = 0, completed_ = 0, released_ = 0;  // chains
  uint64_t rung_ = 0;     // number of the last doorbell; the signalled request has it as wr_id
  uint64_t gave_up_ = 0;  // the last of them that ended after trouble began
  TimePoint quiet_since_{};
  TimePoint asked_at_{};
  bool armed_ = false;
  unsigned unacknowledged_ = 0;
  std::string trouble_;
  bool unanswered_ = false;
};

}  // namespace peercached::rdma
