// READ over TCP: the reader's side. Wire format: docs/protocol.md, "TCP transfer".
//
// One channel = one socket, used by one batch at a time. A batch takes a few channels of each
// peer (more for more bytes), sends its requests pipelined, and the calling thread itself
// receives straight into the destination, helped by mover threads when there is much to move;
// so a small read costs no hand-off between threads. A channel that meets an error or a
// deadline is shut and never used again.
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
  unsigned channels_per_read_max = 4;  // parallel sockets one large batch may use per peer
  unsigned movers = 2;                 // helper threads; 0: the caller does it all
  int connect_timeout_ms = 1000;
  std::string bind_host;  // source address of connections; empty: any
};

// Pages that one peer is asked to keep in its pool for a while. held[i] = 1: it does.
struct HoldBatch {
  HolderIndex peer = kNoHolder;
  Incarnation incarnation = 0;
  std::span<const Digest> digests;
  std::span<uint8_t> held;  // 0 before the call
};

// Digests that one owner is asked for.
struct LookupBatch {
  HolderIndex peer = kNoHolder;
  Incarnation incarnation = 0;
  std::span<const Digest> digests;
  // what came of it
  bool answered = false;  // all of them, at
  TimePoint answered_at{};
  tcp::Located located{.final = true, .holders = {}, .rows = {}};
};

enum class PublishAnswer : uint8_t {
  none,     // it may take them still
  refused,  // it has not got all of them, and takes none of them later
  taken,
};

// Records of pages in our pool that one owner is told.
struct PublishBatch {
  HolderIndex peer = kNoHolder;
  Incarnation incarnation = 0;
  std::span<const RecordRow> rows;
  // what came of it
  PublishAnswer answer = PublishAnswer::none;
};

class TcpEngine : public TransferEngine {
 public:
  // How that peer is called. Throws std::invalid_argument for a token of another length.
  virtual tcp::Dial dial_to(const PeerEndpoint& endpoint) const = 0;
  // Blocks until all peers have answered, at the deadline at the latest. Thread safe. Of whom no
  // answer comes nothing is held, as far as we know. Also where pages come over RDMA: a hold is a
  // message, not a READ.
  virtual void hold(std::span<HoldBatch> batches, uint32_t hold_ms, Deadline deadline) = 0;
  // Likewise. `view_number` is of the ring that the owners were chosen by. Who has not answered at
  // the deadline is slow, and no trouble yet.
  virtual void lookup(std::span<LookupBatch> batches, uint64_t view_number, Deadline deadline) = 0;
  // Likewise. Each frame has the fence of that moment, which is raised for each without an answer.
  virtual void publish(std::span<PublishBatch> batches, std::atomic<uint64_t>& fence,
                       Deadline deadline) = 0;
};

std::unique_ptr<TcpEngine> make_tcp_engine(const TcpEngineConfig& config, PeerWatcher& watcher);

}  // namespace peercached
