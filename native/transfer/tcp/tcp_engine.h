// READ over TCP, and questions to peers: the asking side. Wire format: docs/protocol.md, "TCP
// transfer".
//
// One channel is one socket, used by one batch at a time. A batch takes a few channels of each peer
// (more for more bytes) and pipelines its requests. The calling thread receives straight into the
// destination, so a small read costs no hand-off between threads. Mover threads help with large
// reads. A channel that meets an error or a deadline is shut and never used again.
#pragma once

#include <memory>
#include <string>

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

std::unique_ptr<TransferEngine> make_tcp_engine(const TcpEngineConfig& config,
                                                PeerWatcher& watcher);

}  // namespace peercached
