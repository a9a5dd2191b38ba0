#include "engine/peers/peers.h"

namespace peercached {
namespace {

// Each follower costs its holder a channel (TcpServerConfig::channels_max), and each follows all
// others. So their number grows with the square of the nodes.
constexpr size_t kFollowedMax = 128;

}  // namespace

Peers::Peers(const Parts& parts, std::chrono::milliseconds follow_wait, bool may_store_all)
    : parts_(parts),
      may_store_all_(may_store_all),
      follower_(parts.directory.records(), signs_, parts.transports, parts.transports.tcp(),
                follow_wait) {}

HolderIndex Peers::add(const std::string& node_id, Incarnation incarnation) {
  return parts_.nodes.add(node_id, incarnation);
}

void Peers::drop(HolderIndex index) {
  if (index == kSelfHolder) return;
  parts_.nodes.drop(index);
  follower_.leave(index);
  parts_.directory.records().forget(index);
  parts_.transports.engine().drop_peer(index);
  parts_.locations.forget_holder(index);
}

void Peers::connect(HolderIndex index, const PeerEndpoint& endpoint) {
  parts_.transports.engine().add_peer(index, endpoint);
  parts_.nodes.set_connected(index, true);
  follower_.follow(index, endpoint);
}

void Peers::disconnect(HolderIndex index) {
  if (index == kSelfHolder) return;
  parts_.nodes.set_connected(index, false);
  follower_.leave(index);
  parts_.transports.engine().drop_peer(index);
}

bool Peers::may_store_all(size_t others) const { return may_store_all_ && others <= kFollowedMax; }

void Peers::ring_changed(bool store_all) {
  // Others still ask an owner of the former ring.
  follows_ = store_all || parts_.directory.is_owner() || parts_.directory.was_owner();
  follower_.follow_at_most(follows_ ? kNodesMax : 0);
}

void Peers::stop() {
  follower_.stop();
  for (const auto& node : parts_.nodes.all()) parts_.transports.engine().drop_peer(node.index);
}

std::vector<bool> Peers::prove_paths(std::span<const HolderIndex> indices, Deadline deadline) {
  // Nobody has these pages, so nothing is held. Question and answer take several packets each,
  // because a path may lose only large packets.
  const std::vector<Digest> nowhere(tcp::kDigestsPerRequestMax);
  std::vector<std::vector<uint8_t>> held(indices.size(), std::vector<uint8_t>(nowhere.size()));
  std::vector<HoldBatch> batches;
  std::vector<size_t> of_batch;
  std::vector<bool> proved(indices.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    proved[i] = parts_.transports.rail_reaches(indices[i]);
    if (proved[i]) continue;
    of_batch.push_back(i);
    batches.push_back({indices[i], parts_.nodes.incarnation(indices[i]), nowhere, held[i]});
  }
  parts_.transports.engine().hold(batches, 0, deadline);
  for (size_t b = 0; b < batches.size(); ++b) proved[of_batch[b]] = batches[b].answered;
  return proved;
}

void Peers::set_life_sign(uint64_t view_number, uint64_t sequence, bool is_master,
                          std::chrono::milliseconds expires_after) {
  const uint64_t epochs_mark = parts_.namespaces.epochs_mark();
  signs_.say({view_number, sequence, epochs_mark, uint32_t{is_master}, 0},
             Clock::now() + expires_after);
}

}  // namespace peercached
