// Moves pages from a peer's pool into local memory: the interface of all transports.
//
// A transport moves bytes and reports a status for each page; it decides nothing else. It reads the
// slot header (64 bytes) into `header` and the payload straight into `dest`. Then it reads the
// header again, into `again`. If the holder pins the slot while it sends, one look is enough and
// both are the same. Finally it calls the sink, on the thread that moved the page, while the
// payload is still in the cache. The sink (transfer/verify.h) compares the header with the record
// and checks the payload. A page counts only after that. Fault injection (transfer/fault) sits
// between engine and sink.
//
// The rule of silence: after read() has returned, nothing is written into any `dest` or `header` of
// that call, whatever the status of the page. At the deadline the engine first fences all reads in
// flight: it shuts the socket or drains the QP.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/histogram.h"
#include "common/types.h"
#include "common/write_gate.h"
#include "transfer/messages.h"
#include "transfer/trouble.h"

namespace peercached {

struct ReadOp {
  // Input, from the record.
  Digest digest;
  uint64_t offset = 0;  // of the slot in the peer's pool
  Generation generation = 0;
  uint32_t length = 0;  // payload bytes expected; also the room at dest
  std::byte* dest = nullptr;
  bool to_device = false;  // dest is GPU memory: only RDMA writes it, this process cannot read it
  // Result.
  bool one_sided = false;  // even if it failed: the peer did not notice the read
  SlotHeader header;       // read with the payload
  SlotHeader again;        // read once more after the payload
  PageStatus status = PageStatus::pending;
  bool corrupt = false;  // set by the sink: header matches the record, but not the payload
  // Of the payload, if the engine computed it on arrival. Code that changes the payload resets it.
  std::optional<uint64_t> checksum = {};
};

// All pages that one call reads from one peer.
struct ReadBatch {
  HolderIndex peer = kNoHolder;
  Incarnation incarnation = 0;  // of the peer, from the records
  std::span<ReadOp> ops;
};

class PageSink {
 public:
  virtual ~PageSink() = default;
  // Header and payload of `op` have landed. Sets op.status. Any engine thread may call it, once per
  // page, concurrently for different pages.
  virtual void landed(const ReadBatch& batch, ReadOp& op) = 0;
  // Whether the sink uses checksums. If not, the engine need not compute any.
  virtual bool sums() const = 0;
};

// Transports of a node beside TCP: their names, and what each tells its peers, in bytes of its own.
using TransportOffers = std::map<std::string, std::string>;

struct PeerEndpoint {  // from the peers' handshake; the token is for this pair of incarnations
  std::string host;
  uint16_t port = 0;
  std::string token;  // 32 bytes
  Incarnation incarnation = 0;
  TransportOffers transports = {};
  bool sealed = false;  // its data port speaks TLS
  friend bool operator==(const PeerEndpoint&, const PeerEndpoint&) = default;
};

struct PeerHealth {
  HolderIndex peer = kNoHolder;
  const char* transport = "tcp";
  uint32_t channels = 0;
  uint64_t pages = 0, bytes = 0, errors = 0, deadlines = 0, corrupt = 0;
  LatencySnapshot reads{};
};

// An engine calls it when a peer is in trouble, so that the next batch need not wait for that peer.
class PeerWatcher {
 public:
  virtual ~PeerWatcher() = default;
  virtual void peer_trouble(HolderIndex peer, Incarnation incarnation, const Trouble& what) = 0;
};

// One way to READ pages from peers.
class Transport {
 public:
  virtual ~Transport() = default;

  // Adds a peer. A new incarnation replaces the old one and all its channels; the same endpoint
  // again changes nothing. A host that is no address shows as trouble at the first read.
  // Throws std::invalid_argument for a token of a wrong length.
  virtual void add_peer(HolderIndex peer, const PeerEndpoint& endpoint) = 0;
  // Closes the peer's channels; reads in flight end with PageStatus::error.
  virtual void drop_peer(HolderIndex peer) = 0;

  // Blocks until every op of every batch has a final status. Peers are read in parallel: trouble of
  // one peer never delays another peer's pages beyond the deadline. Thread safe. The engine enters
  // `gate` before every write into worker memory.
  virtual void read(std::span<ReadBatch> batches, Deadline deadline, WriteGate& gate,
                    PageSink& sink) = 0;

  virtual std::vector<PeerHealth> health() const = 0;
  virtual const char* name() const = 0;  // "tcp", "rdma"

  // Whether the peer can be read over it, as the handshake says, and whether it can be read now.
  virtual bool offered_by(const PeerEndpoint& peer) const {
    return peer.transports.contains(name());
  }
  virtual bool reaches(HolderIndex) const { return true; }
  // Whether the peer does not notice its READs.
  virtual bool one_sided() const { return false; }
};

// All that the engine wants of its peers: pages, over the transport that is best for each peer, and
// answers. Questions always go over TCP, because an answer costs the peer's processor anyway.
class TransferEngine : public Transport {
 public:
  // Blocks until all peers have answered, at most until the deadline. Thread safe. Without an
  // answer, a peer counts as holding nothing.
  virtual void hold(std::span<HoldBatch> batches, uint32_t hold_ms, Deadline deadline) = 0;
  // Blocks like hold(). `view_number` names the view that the owners are from. An owner that misses
  // the deadline is slow; that is not yet trouble.
  virtual void lookup(std::span<LookupBatch> batches, uint64_t view_number, Deadline deadline) = 0;
  // Pushes changes of our records, at most until the deadline.
  virtual void push(std::span<PushBatch> batches, Deadline deadline) = 0;
};

}  // namespace peercached
