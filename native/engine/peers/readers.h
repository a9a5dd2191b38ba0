// The nodes that read from this one: their tokens, and our data port.
//
// Thread safe, except listen() and close().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "common/made_late.h"
#include "common/types.h"
#include "engine/peers/transports.h"
#include "pool/pool.h"
#include "transfer/tcp/tcp_server.h"

namespace peercached {

class Readers {
 public:
  explicit Readers(Transports& transports) : transports_(transports) {}

  // Binds the data port and serves peers. Throws std::runtime_error with the remedy.
  void listen(const TcpServerConfig& config, Pool& pool, const TcpServer::Answers& answers) {
    server_.make(config, pool, std::bind_front(&Readers::token_of, this), answers);
  }
  void close() {
    if (TcpServer* const server = server_.get()) server->stop();
  }
  uint16_t port() const {  // 0: it has never listened
    const TcpServer* const server = server_.get();
    return server ? server->port() : 0;
  }
  TcpServerStats stats() const {
    const TcpServer* const server = server_.get();
    return server ? server->stats() : TcpServerStats{};
  }

  // This process shows this token when it reads. Replaces an older one.
  void admit(const std::string& node_id, Incarnation incarnation, const std::string& token) {
    std::lock_guard lock(mutex_);
    tokens_[{node_id, incarnation}] = token;
  }
  // It can read no more.
  void expel(const std::string& node_id, Incarnation incarnation) {
    {
      std::lock_guard lock(mutex_);
      tokens_.erase({node_id, incarnation});
    }
    if (TcpServer* const server = server_.get()) server->drop_peer(node_id, incarnation);
    transports_.drop_reader(node_id, incarnation);
  }

 private:
  std::string token_of(const std::string& node_id, Incarnation incarnation) const {
    std::lock_guard lock(mutex_);
    const auto found = tokens_.find({node_id, incarnation});
    return found == tokens_.end() ? std::string() : found->second;
  }

  Transports& transports_;
  mutable std::mutex mutex_;
  // By process and not by node id. A second daemon with a copied configuration shakes hands before
  // it is refused, and must not shut out the first one. The control plane bounds their number.
  std::map<std::pair<std::string, Incarnation>, std::string> tokens_;
  MadeLate<TcpServer> server_;
};

}  // namespace peercached
