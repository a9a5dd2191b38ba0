// The nodes that read from this one: their tokens, and our data port.
//
// Thread safe, except listen() and close().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

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
    server_ = std::make_unique<TcpServer>(config, pool, std::bind_front(&Readers::token_of, this),
                                          answers);
  }
  void close() { server_.reset(); }
  uint16_t port() const { return server_ ? server_->port() : 0; }  // 0: it does not listen
  TcpServerStats stats() const { return server_ ? server_->stats() : TcpServerStats{}; }

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
    if (server_) server_->drop_peer(node_id, incarnation);
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
  std::unique_ptr<TcpServer> server_;
};

}  // namespace peercached
