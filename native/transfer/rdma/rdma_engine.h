// READ over RDMA: the reader's side. transfer/rdma/chain.h tells how a page is read and verified.
//
// The reading thread posts to all peers at once, over several channels and rails, and polls for
// completions itself. An idle engine runs no thread.
#pragma once

#include <memory>

#include "transfer/rdma/memory_table.h"
#include "transfer/rdma/peer_channels.h"
#include "transfer/transfer.h"

namespace peercached::rdma {

class RdmaEngine : public Transport {
 public:
  // The control plane's answers to ChannelRequests. They are ignored if the peer or the channel
  // is gone meanwhile. A channel of a doubted rail sends its test READs at once: call
  // prove_doubted() soon.
  virtual void connected(HolderIndex peer, uint32_t channel, ChannelAnswer answer) = 0;
  virtual void refused(HolderIndex peer, uint32_t channel, const std::string& why) = 0;
  bool one_sided() const override { return true; }
  // Continues the proofs for all peers; call it now and then. Returns whether test READs are out:
  // then call it soon, because what nobody looks at in time counts as late.
  virtual bool prove_doubted() = 0;
  // A rail of ours went down: reads go on over the others.
  virtual void leave_rail(const Rail& rail) = 0;

  virtual std::vector<RailTrouble> troubles() const = 0;  // with all peers
};

struct RdmaEngineConfig {
  unsigned channels_max = 8;  // per peer and rail
  // Pages that no rail brings in time are read over TCP. So they may end with PageStatus::error
  // long before the deadline.
  bool tcp_follows = false;
};

// `rails`, `memory` and `requests` must outlive the engine. It never reports a peer as in trouble:
// only TCP decides whether the peer is alive.
std::unique_ptr<RdmaEngine> make_rdma_engine(const RdmaEngineConfig& config,
                                             std::span<const std::unique_ptr<Rail>> rails,
                                             const MemoryTable& memory, ChannelRequests& requests);

}  // namespace peercached::rdma
