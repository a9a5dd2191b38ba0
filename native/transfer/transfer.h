// Moving pages from a peer's pool into local memory: the one interface of all engines.
//
// An engine moves bytes and says what became of each page; it decides nothing else. It puts
// the 64-byte slot header into `header`, the payload straight into `dest`, and the header as it
// is after that into `again` (a holder that pins the slot while it sends has no second look: the
// same one); then it calls the sink, on the thread that moved it, while the payload is still in
// the cache. The sink
// (transfer/verify.h) compares header and record and checks the payload: a page counts only
// after that. Fault injection (transfer/fault) sits between engine and sink.
//
// The rule of silence: when read() has returned, nothing will be written into
// any `dest` or `header` of that call any more, whatever became of the page. What is still
// in flight at the deadline is fenced first: the socket is shut, the QP drained.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/histogram.h"
#include "common/types.h"
#include "common/write_gate.h"
#include "transfer/trouble.h"

namespace peercached {

struct ReadOp {
  // what to read, from the record
  Digest digest;
  uint64_t offset = 0;  // of the slot in the peer's pool
  Generation generation = 0;
  uint32_t length = 0;  // payload bytes expected; also the room at dest
  std::byte* dest = nullptr;
  bool to_device = false;  // dest is a GPU's: for RDMA only, and nobody can read it back here
  // what came of it
  bool one_sided = false;  // read, or tried, without the peer noticing
  SlotHeader header;       // that came with the payload
  SlotHeader again;        // as it was once the payload had been read
  PageStatus status = PageStatus::pending;
  bool corrupt = false;  // the sink says: the right header came with bytes that are not its page's
  // Of the payload, if the engine made it while the bytes came; whoever changes them drops it.
  std::optional<uint64_t> checksum = {};
};

// All pages of one call that lie at one peer.
struct ReadBatch {
  HolderIndex peer = kNoHolder;
  Incarnation incarnation = 0;  // of the peer, as in the records
  std::span<ReadOp> ops;
};

class PageSink {
 public:
  virtual ~PageSink() = default;
  // Header and payload of `op` have landed. Sets op.status. Called from any of the engine's
  // threads, once per page, concurrently for different pages.
  virtual void landed(const ReadBatch& batch, ReadOp& op) = 0;
  // Whether it will look at checksums: else the engine need not make any.
  virtual bool sums() const = 0;
};

struct PeerEndpoint {  // from the peers' handshake; the token is for this pair of incarnations
  std::string host;
  uint16_t port = 0;
  std::string token;  // 32 bytes
  Incarnation incarnation = 0;
  unsigned rails = 0;   // that it can be read by over RDMA
  bool sealed = false;  // its data port speaks TLS
  friend bool operator==(const PeerEndpoint&, const PeerEndpoint&) = default;
};

struct PeerHealth {
  HolderIndex peer = kNoHolder;
  bool rdma = false;  // else TCP
  uint32_t channels = 0;
  uint64_t pages = 0, bytes = 0, errors = 0, deadlines = 0, corrupt = 0;
  LatencySnapshot reads{};
};

// Told by an engine when a peer gives trouble, so that the next batch need not wait for it.
class PeerWatcher {
 public:
  virtual ~PeerWatcher() = default;
  virtual void peer_trouble(HolderIndex peer, Incarnation incarnation, const Trouble& what) = 0;
};

class TransferEngine {
 public:
  virtual ~TransferEngine() = default;

  // A peer (or its new incarnation, which replaces the old one and all its channels; the same
  // endpoint again changes nothing). A host name that does not resolve shows as trouble when
  // it is read from; throws std::invalid_argument for a token of a wrong length.
  virtual void add_peer(HolderIndex peer, const PeerEndpoint& endpoint) = 0;
  // Closes its channels; reads in flight end with PageStatus::error.
  virtual void drop_peer(HolderIndex peer) = 0;

  // Blocks until every op of every batch has a final status. Peers are read in parallel;
  // one peer's trouble never delays another's pages beyond the deadline. Thread safe.
  // `gate` stands before every write into worker memory.
  virtual void read(std::span<ReadBatch> batches, Deadline deadline, WriteGate& gate,
                    PageSink& sink) = 0;

  virtual std::vector<PeerHealth> health() const = 0;
  virtual const char* name() const = 0;  // "tcp", "rdma"
};

}  // namespace peercached
