#include "transfer/tcp/dialer.h"

#include <stdexcept>

namespace peercached::tcp {

Dialer::Dialer(const TcpEngineConfig& config) {
  ours_.hello.node_id = config.node_id;
  ours_.hello.incarnation = config.incarnation;
  ours_.connect_timeout_ms = config.connect_timeout_ms;
  std::string wrong;
  if (!config.bind_host.empty() && !resolve(config.bind_host, 0, ours_.source, wrong)) {
    throw std::invalid_argument("transfer source address: " + wrong);
  }
}

Dial Dialer::dial_to(const PeerEndpoint& endpoint) const {
  if (endpoint.token.size() != kTokenBytes) {
    throw std::invalid_argument("peer token has " + std::to_string(endpoint.token.size()) +
                                " bytes, not " + std::to_string(kTokenBytes));
  }
  Dial dial = ours_;
  dial.hello.expected = endpoint.incarnation;
  dial.token = endpoint.token;
  dial.sealed = endpoint.sealed;
  (void)resolve(endpoint.host, endpoint.port, dial.address, dial.unresolved);
  return dial;
}

}  // namespace peercached::tcp
