// The nodes that this one reads from: they get a holder index while they are in the view, and are
// followed for their records. Signs of life travel with the questions and answers.
//
// Thread safe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/types.h"
#include "engine/peers/transports.h"
#include "engine/records/directory.h"
#include "engine/records/locations.h"
#include "engine/records/nodes.h"
#include "engine/storage/namespaces.h"
#include "transfer/tcp/follower.h"
#include "transfer/tcp/life_signs.h"

namespace peercached {

class Peers {
 public:
  struct Parts {
    NodeTable& nodes;
    const NamespaceTable& namespaces;
    Directory& directory;
    LocationCache& locations;
    Transports& transports;
  };

  // `follow_wait`: of a follower's question; also the interval of signs of life. `may_store_all`:
  // see view_changed().
  Peers(const Parts& parts, std::chrono::milliseconds follow_wait, bool may_store_all);

  HolderIndex add(const std::string& node_id, Incarnation incarnation);
  // Its records and cached locations are void at once.
  void drop(HolderIndex index);
  void connect(HolderIndex index, const PeerEndpoint& endpoint);
  // Ends all reads in flight. connect() connects again.
  void disconnect(HolderIndex index);
  // Also ends the thread that follows them, which must not live when the process exits.
  void stop();

  // With few nodes, we keep the records of all. With more, an owner keeps the records that it owns,
  // and other nodes keep none.
  bool may_store_all(size_t others) const;
  void ring_changed(bool store_all);
  bool follows() const { return follows_; }

  // Blocks until pages could come from these nodes, at most until the deadline. True: large frames
  // went there and back, or a rail is trusted to reach the node.
  std::vector<bool> prove_paths(std::span<const HolderIndex> indices, Deadline deadline);

  // Sets our own sign of life.
  void set_life_sign(uint64_t view_number, uint64_t sequence, bool is_master,
                     std::chrono::milliseconds expires_after);
  tcp::LifeSigns& signs() { return signs_; }

 private:
  const Parts parts_;
  const bool may_store_all_;
  std::atomic<bool> follows_{false};
  tcp::LifeSigns signs_;
  tcp::Follower follower_;
};

}  // namespace peercached
