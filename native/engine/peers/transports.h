// How pages of other nodes get here: over TCP, or over a faster transport where both sides have it
// (a provider).
//
// Reports peers in trouble to the control plane, and asks it to connect a provider's channels.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/notices.h"
#include "engine/control/config.h"
#include "engine/control/control_queue.h"
#include "engine/records/nodes.h"
#include "pool/pool.h"
#include "transfer/provider.h"
#include "transfer/routed/routed_engine.h"
#include "transfer/tcp/tcp_engine.h"

namespace peercached {

class Transports final : public PeerWatcher, private ChannelRequests {
 public:
  // Registers the pool with the devices. Throws std::runtime_error if a provider is demanded and
  // absent.
  Transports(const EngineConfig& config, const Pool& pool, NodeTable& nodes, ControlQueue& control);

  // Each peer is read over its transport, with the faults of the configuration. Messages go over
  // TCP.
  TransferEngine& engine() { return *engine_; }
  const TcpEngineConfig& tcp() const { return tcp_; }

  // --- workers' regions (ipc/handler.h)
  // Its first `bytes` are about to be used. Throws std::runtime_error if they cannot be registered.
  void pool_grew(uint64_t bytes);
  void region_mapped(std::byte* base, uint64_t bytes);
  void device_region_mapped(std::byte* base, uint64_t bytes, int fd);
  void region_unmapped(std::byte* base) noexcept;

  // --- a provider's channels. The control plane's answers to EventKind::connect_channel:
  void channel_connected(uint64_t connect_id, std::span<const std::byte> answer);
  void channel_refused(uint64_t connect_id, const std::string& why);
  // As the holder: a peer wants a channel. Throws std::runtime_error or std::invalid_argument.
  std::vector<std::byte> accept_channel(const std::string& node_id, Incarnation incarnation,
                                        std::span<const std::byte> offer,
                                        std::span<const uint32_t> closed);
  void drop_reader(const std::string& node_id, Incarnation incarnation);  // it can read no more
  // Whether a rail is trusted to reach this node.
  bool rail_reaches(HolderIndex peer) const;
  void admit_readers(bool on);  // off: from now on nobody can read over a provider

  // --- for the operator
  TransportOffers offers() const;  // for the handshakes of this node
  std::vector<std::pair<std::string, LatencySnapshot>> rail_reads() const;
  std::string status_json() const;
  void notify(Notices& notices);  // changes of the rails

 private:
  void peer_trouble(HolderIndex peer, Incarnation incarnation, const Trouble& what) override;
  bool request_channel(HolderIndex peer, uint32_t channel, std::span<const std::byte> end,
                       std::span<const uint32_t> closed) override;

  // Null if none is wanted, or it is absent and not demanded; why_no_provider_ says why.
  std::unique_ptr<Provider> make_provider(const EngineConfig& config, const Pool& pool);
  std::string name_of(HolderIndex peer) const;

  NodeTable& nodes_;
  ControlQueue& control_;
  const std::string node_id_;
  std::string why_no_provider_;
  std::unique_ptr<Provider> provider_;  // null: TCP only
  RoutedCounters routed_counters_;
  TcpEngineConfig tcp_;
  std::unique_ptr<TransferEngine> engine_;
};

}  // namespace peercached
