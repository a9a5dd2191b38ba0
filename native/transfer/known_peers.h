// The peers that an engine can read from: each peer's endpoint and the engine's channels to it.
// Thread safe.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "transfer/transfer.h"

namespace peercached {

// `Channels` has counters, size() and close(). A read in flight keeps its channels alive.
template <typename Channels>
class KnownPeers {
 public:
  ~KnownPeers() {
    for (auto& [index, peer] : peers_) peer.channels->close();
  }

  std::optional<PeerEndpoint> endpoint(HolderIndex index) const {
    ReaderLock lock(mutex_);
    auto it = peers_.find(index);
    return it == peers_.end() ? std::nullopt : std::optional(it->second.endpoint);
  }

  // Returns null if the peer is unknown, or known by another incarnation. 0: any will do.
  std::shared_ptr<Channels> find(HolderIndex index, Incarnation incarnation = 0) const {
    ReaderLock lock(mutex_);
    const auto it = peers_.find(index);
    if (it == peers_.end()) return nullptr;
    const bool is_it = incarnation == 0 || it->second.endpoint.incarnation == incarnation;
    return is_it ? it->second.channels : nullptr;
  }

  // Calls `open(batch, channels)` for each batch if its peer is known by this incarnation. The
  // pages of all other batches end with an error.
  template <typename Open>
  void open(std::span<ReadBatch> batches, const Open& open) const {
    for (ReadBatch& batch : batches) {
      if (auto channels = find(batch.peer, batch.incarnation)) {
        open(batch, std::move(channels));
      } else {
        for (ReadOp& op : batch.ops) op.status = PageStatus::error;
      }
    }
  }

  // Replaces the peer's entry and closes its old channels. Without `channels` it has none.
  void put(HolderIndex index, const PeerEndpoint& endpoint, std::shared_ptr<Channels> channels) {
    std::shared_ptr<Channels> old;
    {
      WriterLock lock(mutex_);
      if (const auto it = peers_.find(index); it != peers_.end()) {
        old = std::move(it->second.channels);
        peers_.erase(it);
      }
      if (channels) peers_.emplace(index, Peer{endpoint, std::move(channels)});
    }
    if (old) old->close();
  }
  void forget(HolderIndex index) { put(index, {}, nullptr); }

  std::vector<std::pair<HolderIndex, std::shared_ptr<Channels>>> all() const {
    ReaderLock lock(mutex_);
    std::vector<std::pair<HolderIndex, std::shared_ptr<Channels>>> all;
    for (const auto& [index, peer] : peers_) all.emplace_back(index, peer.channels);
    return all;
  }

  std::vector<PeerHealth> health(const char* transport) const {
    ReaderLock lock(mutex_);
    std::vector<PeerHealth> all;
    for (const auto& [index, peer] : peers_) {
      const auto& c = peer.channels->counters;
      all.push_back({index, transport, peer.channels->size(), c.pages, c.bytes, c.errors,
                     c.deadlines, c.corrupt, c.reads.snapshot()});
    }
    return all;
  }

 private:
  struct Peer {
    PeerEndpoint endpoint;
    std::shared_ptr<Channels> channels;
  };

  mutable SharedMutex mutex_;
  std::unordered_map<HolderIndex, Peer> peers_ GUARDED_BY(mutex_);
};

}  // namespace peercached
