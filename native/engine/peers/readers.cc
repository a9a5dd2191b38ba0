#include "engine/peers/readers.h"

namespace peercached {

void Readers::listen(const TcpServerConfig& config, Pool& pool, const TcpServer::Answers& answers) {
  const auto token = [this](const std::string& node_id, Incarnation incarnation) {
    return token_of(node_id, incarnation);
  };
  server_ = std::make_unique<TcpServer>(config, pool, token, answers);
}

void Readers::admit(const std::string& node_id, Incarnation incarnation, const std::string& token) {
  std::lock_guard lock(mutex_);
  tokens_[{node_id, incarnation}] = token;
}

void Readers::expel(const std::string& node_id, Incarnation incarnation) {
  {
    std::lock_guard lock(mutex_);
    tokens_.erase({node_id, incarnation});
  }
  if (server_) server_->drop_peer(node_id, incarnation);
  transports_.drop_reader(node_id, incarnation);
}

std::string Readers::token_of(const std::string& node_id, Incarnation incarnation) const {
  std::lock_guard lock(mutex_);
  const auto found = tokens_.find({node_id, incarnation});
  return found == tokens_.end() ? std::string() : found->second;
}

}  // namespace peercached
