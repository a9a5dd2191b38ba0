#include "engine/peers.h"

namespace peercached {

Peers::Peers(const Parts& parts, std::chrono::milliseconds follow_wait) : parts_(parts) {
  if (parts_.copies != nullptr)
    follower_ = std::make_unique<tcp::Follower>(*parts_.copies, signs_, parts_.transports.tcp(),
                                                follow_wait);
}

HolderIndex Peers::add(const std::string& node_id, Incarnation incarnation) {
  const auto swept = [&](HolderIndex index) { return parts_.directory.shard().swept(index); };
  const auto [index, is_new] = parts_.nodes.add(node_id, incarnation, swept);
  if (is_new) parts_.directory.add_holder(index);
  return index;
}

void Peers::drop(HolderIndex index) {
  if (index == kSelfHolder) return;
  parts_.nodes.drop(index);
  if (follower_) follower_->leave(index);
  if (parts_.copies != nullptr) parts_.copies->forget(index);
  parts_.directory.drop_holder(index);
  parts_.transports.engine().drop_peer(index);
  parts_.locations.forget_holder(index);
}

void Peers::connect(HolderIndex index, const PeerEndpoint& endpoint) {
  parts_.transports.engine().add_peer(index, endpoint);
  parts_.nodes.set_connected(index, true);
  if (follower_) follower_->follow(index, endpoint);
}

void Peers::disconnect(HolderIndex index) {
  if (index == kSelfHolder) return;
  parts_.nodes.set_connected(index, false);
  if (follower_) follower_->leave(index);
  parts_.transports.engine().drop_peer(index);
}

void Peers::disconnect_all() {
  for (const auto& node : parts_.nodes.all()) parts_.transports.engine().drop_peer(node.index);
}

void Peers::say_life(uint64_t view_number, uint64_t sequence, bool is_master,
                     std::chrono::milliseconds life) {
  const uint64_t epochs_mark = parts_.namespaces.epochs_mark();
  signs_.say({view_number, sequence, epochs_mark, uint32_t{is_master}, 0}, Clock::now() + life);
}

}  // namespace peercached
