// READ over TCP: the reader's side. Wire format: docs/protocol.md, "TCP transfer".
//
// One channel is one socket, used by one batch at a time. A batch takes a few channels of each peer
// (more for more bytes) and pipelines its requests. The calling thread receives straight into the
// destination, so a small read costs no hand-off between threads. Mover threads help with large
// reads. A channel that meets an error or a deadline is shut and never used again.
#pragma once

#include <atomic>
#include <memory>

#include "transfer/tcp/channel.h"
#include "transfer/tcp/frames.h"
#include "transfer/transfer.h"

namespace peercached {

struct TcpEngineConfig {
  std::string node_id;
  Incarnation incarnation = 0;  // ours
  unsigned channels_per_peer_max = 8;
  unsigned channels_per_read_max = 4;  // for one large batch, per peer
  unsigned movers = 2;                 // helper threads; 0: only the caller receives
  int connect_timeout_ms = 1000;
  std::string bind_host;  // source address of connections; empty: any
};

// Pages that one peer is asked to keep in its pool for a while. held[i] = 1: it keeps page i.
struct HoldBatch {
  HolderIndex peer = kNoHolder;
  Incarnation incarnation = 0;
  std::span<const Digest> digests;
  std::span<uint8_t> held;  // must be 0 before the call
};

// Digests that one owner is asked to look up.
struct LookupBatch {
  HolderIndex peer = kNoHolder;
  Incarnation incarnation = 0;
  std::span<const Digest> digests;
  // Result.
  bool answered = false;  // completely, at the time answered_at
  TimePoint answered_at{};
  tcp::Located located{.final = true, .holders = {}, .rows = {}};
};

enum class PublishAnswer : uint8_t {
  none,     // unknown: the owner may still store them
  refused,  // the owner lacks some of them, and will store none of those later
  taken,
};

// Records of pages in our pool, for one owner to store.
struct PublishBatch {
  HolderIndex peer = kNoHolder;
  Incarnation incarnation = 0;
  std::span<const RecordRow> rows;
  // Result.
  PublishAnswer answer = PublishAnswer::none;
};

class TcpEngine : public TransferEngine {
 public:
  // The parameters for connecting to that peer. Throws std::invalid_argument for a token of a wrong
  // length.
  virtual tcp::Dial dial_to(const PeerEndpoint& endpoint) const = 0;
  // Blocks until all peers have answered, at most until the deadline. Thread safe. Without an
  // answer, a peer counts as holding nothing. Works for peers with RDMA too: a hold is a message,
  // not a READ.
  virtual void hold(std::span<HoldBatch> batches, uint32_t hold_ms, Deadline deadline) = 0;
  // Blocks like hold(). `view_number` names the view whose ring chose the owners. An owner that
  // misses the deadline is slow; that is not yet trouble.
  virtual void lookup(std::span<LookupBatch> batches, uint64_t view_number, Deadline deadline) = 0;
  // Blocks like hold(). Each frame carries the current `fence`; each unanswered frame raises it.
  virtual void publish(std::span<PublishBatch> batches, std::atomic<uint64_t>& fence,
                       Deadline deadline) = 0;
};

std::unique_ptr<TcpEngine> make_tcp_engine(const TcpEngineConfig& config, PeerWatcher& watcher);

}  // namespace peercached
