// How this node connects to its peers: from where, and as whom.
#pragma once

#include "transfer/tcp/channel.h"
#include "transfer/tcp/tcp_engine.h"

namespace peercached::tcp {

class Dialer {
 public:
  // Throws std::invalid_argument for a source address that does not resolve.
  explicit Dialer(const TcpEngineConfig& config);

  // The parameters for connecting to that peer. Throws std::invalid_argument for a token of a wrong
  // length.
  Dial dial_to(const PeerEndpoint& endpoint) const;

 private:
  Dial ours_;  // without the peer's part
};

}  // namespace peercached::tcp
