// READ over RDMA: the reader's side. How a page is read and proved: transfer/rdma/chain.h.
//
// The thread that reads posts to all peers at once, over several channels and rails, and looks
// for completions itself; an idle engine has no thread that runs.
#pragma once

#include <memory>

#include "transfer/rdma/memory_table.h"
#include "transfer/rdma/peer_channels.h"
#include "transfer/transfer.h"

namespace peercached::rdma {

class RdmaEngine : public TransferEngine {
 public:
  // The control plane's answers to Connector::connect; of a peer or channel that is gone
  // meanwhile they mean nothing.
  virtual void connected(HolderIndex peer, uint32_t channel, ChannelAnswer answer) = 0;
  virtual void refused(HolderIndex peer, uint32_t channel, const std::string& why) = 0;
  // Whether a READ from this peer makes sense now: it has rails, and one of ours is up and relied
  // on to reach it. Goes on with the proofs of those that are doubted.
  virtual bool reaches(HolderIndex peer) const = 0;
  // The same for all peers, whoever reads: now and then.
  virtual void prove_doubted() = 0;
  // Our own rail went out: reads go on over the others.
  virtual void leave_rail(const Rail& rail) = 0;

  struct Trouble {
    HolderIndex peer = kNoHolder;
    uint32_t rail = 0;
    std::string what;
  };
  // By which of our rails that are up no page of a peer's is read now, and why.
  virtual std::vector<Trouble> troubles() const = 0;
};

struct RdmaEngineConfig {
  unsigned channels_max = 8;  // per peer and rail
  // Pages that no rail brings in good time may end with PageStatus::error long before the deadline:
  // they are read over TCP.
  bool tcp_follows = false;
};

// `rails`, `memory` and `connector` outlive it. Trouble of a rail is never trouble of the peer:
// whether that lives is seen over TCP.
std::unique_ptr<RdmaEngine> make_rdma_engine(const RdmaEngineConfig& config,
                                             std::span<const std::unique_ptr<Rail>> rails,
                                             const MemoryTable& memory, Connector& connector);

}  // namespace peercached::rdma
