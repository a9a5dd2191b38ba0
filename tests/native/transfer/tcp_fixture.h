// A holder (pool and server) and a reader (engine) over 127.0.0.1.
#pragma once

#include <atomic>
#include <memory>

#include "common/fault_guard.h"
#include "transfer/fixture.h"
#include "transfer/tcp/tcp_engine.h"
#include "transfer/tcp/tcp_server.h"

namespace peercached::testing {

inline const std::string kToken(32, 't');

class Holder : public PagePool {
 public:
  explicit Holder(uint64_t pool_bytes, TcpServerConfig config = {},
                  Incarnation incarnation_ = kHolderIncarnation)
      : PagePool(pool_bytes, incarnation_) {
    config.host = "127.0.0.1";
    config.incarnation = incarnation;
    sealed = config.sealed;
    server = std::make_unique<TcpServer>(
        config, pool,
        [](const std::string& node, Incarnation reader) {
          return node == "reader" && reader == kReaderIncarnation ? kToken : std::string();
        },
        TcpServer::Answers{
            [this] { return serves.load(); },
            [this](std::span<const Digest> digests, uint32_t hold_ms, std::span<uint8_t> held) {
              last_hold_ms = hold_ms;
              pool.contains(digests, false, held);
            },
            [this](std::span<const Digest> digests, uint64_t view_number, Located& located) {
              if (lookup) lookup(digests, view_number, located);
            },
            [this](Incarnation peer, const FeedPart& part) {
              return push ? push(peer, part) : uint64_t{0};
            },
            [this](Incarnation peer, const tcp::LifeSign& sign, const FeedQuestion& question,
                   uint32_t wait_ms, const auto& answer) {
              return follow && follow(peer, sign, question, wait_ms, answer);
            }});
  }

  PeerEndpoint endpoint() const {
    return {"127.0.0.1", server->port(), kToken, incarnation, {}, sealed};
  }

  std::atomic<uint32_t> last_hold_ms{0};
  std::atomic<bool> serves{true};
  bool sealed = false;
  // Set before the first request.
  TcpServer::Lookup lookup;
  TcpServer::Push push;
  TcpServer::Follow follow;
  std::unique_ptr<TcpServer> server;
};

inline TcpEngineConfig as_reader(TcpEngineConfig config = {}) {
  config.node_id = "reader";
  config.incarnation = kReaderIncarnation;
  return config;
}
inline std::unique_ptr<TransferEngine> make_reader(PeerWatcher& watcher,
                                                   const TcpEngineConfig& config = {}) {
  return make_tcp_engine(as_reader(config), watcher);
}

}  // namespace peercached::testing
