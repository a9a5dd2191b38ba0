#include "engine/peers/transports.h"

#include <stdexcept>

#include "common/json.h"
#include "engine/control/events.h"
#include "transfer/fault/fault.h"

namespace peercached {

namespace {

// A connect id names a peer and one of the channels to it.
uint64_t connect_id_of(HolderIndex peer, uint32_t channel) {
  return static_cast<uint64_t>(peer) << 32 | channel;
}
HolderIndex peer_of(uint64_t connect_id) { return static_cast<HolderIndex>(connect_id >> 32); }
uint32_t channel_of(uint64_t connect_id) { return static_cast<uint32_t>(connect_id); }

}  // namespace

Transports::Transports(const EngineConfig& config, const Pool& pool, NodeTable& nodes,
                       ControlQueue& control)
    : nodes_(nodes), control_(control), node_id_(config.node_id) {
  tcp_.node_id = config.node_id;
  tcp_.incarnation = config.incarnation;
  tcp_.channels_per_peer_max = config.channels_per_peer;
  tcp_.connect_timeout_ms = config.connect_timeout_ms;
  tcp_.bind_host = config.data_host;
  engine_ = make_tcp_engine(tcp_, *this);
  provider_ = make_provider(config, pool);
  if (provider_) {
    engine_ = make_routed_engine(provider_->transport(), std::move(engine_),
                                 config.protocol == "auto" ? Unreached::use_other : Unreached::fail,
                                 routed_counters_);
  }
  const FaultPlan plan = parse_fault_plan(config.faults);
  if (plan.any()) engine_ = make_faulty(std::move(engine_), plan, *this);
}

std::unique_ptr<Provider> Transports::make_provider(const EngineConfig& config, const Pool& pool) {
  if (config.protocol == "tcp") {
    why_no_provider_ = "protocol = \"tcp\"";
    return nullptr;
  }
  const bool any = config.protocol == "auto";
  for (const ProviderChoice& choice : config.providers) {
    const bool demanded = config.protocol == choice.name;
    if (!demanded && !any) continue;
    try {
      return choice.make({pool.base(), pool.size_bytes(), pool.ready_bytes(), config.data_host,
                          config.incarnation, config.channels_per_peer, demanded, *this});
    } catch (const std::runtime_error& error) {
      if (demanded) {
        throw std::runtime_error("protocol = \"" + choice.name + "\": " + error.what() +
                                 " (protocol = \"auto\" would go on with TCP)");
      }
      why_no_provider_ += (why_no_provider_.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  if (!any) throw std::invalid_argument("protocol: this daemon has no '" + config.protocol + "'");
  return nullptr;
}

void Transports::peer_trouble(HolderIndex peer, Incarnation incarnation, const Trouble& what) {
  if (nodes_.incarnation(peer) != incarnation) return;  // that process is gone anyway
  nodes_.set_suspect(peer, true);
  const PeerTrouble event{incarnation, peer, what.token_unknown};
  control_.post(EventKind::peer_trouble, payload_of(event, what.text));
}

bool Transports::request_channel(HolderIndex peer, uint32_t channel, std::span<const std::byte> end,
                                 std::span<const uint32_t> closed) {
  const ChannelQuestion head{
      peer, {}, static_cast<uint32_t>(end.size()), connect_id_of(peer, channel)};
  return control_.post(EventKind::connect_channel, payload_of(head, end, closed));
}

void Transports::channel_connected(uint64_t connect_id, std::span<const std::byte> answer) {
  if (provider_) {
    provider_->channel_connected(peer_of(connect_id), channel_of(connect_id), answer);
  }
}

void Transports::channel_refused(uint64_t connect_id, const std::string& why) {
  if (provider_) provider_->channel_refused(peer_of(connect_id), channel_of(connect_id), why);
}

std::vector<std::byte> Transports::accept_channel(const std::string& node_id,
                                                  Incarnation incarnation,
                                                  std::span<const std::byte> offer,
                                                  std::span<const uint32_t> closed) {
  if (!provider_)
    throw std::runtime_error(node_id_ + " reads and serves over TCP only: " + why_no_provider_);
  return provider_->accept_channel(node_id, incarnation, offer, closed);
}

void Transports::pool_grew(uint64_t bytes) {
  if (provider_) provider_->pool_grew(bytes);
}

void Transports::region_mapped(std::byte* base, uint64_t bytes) {
  if (provider_) provider_->add_region(base, bytes, -1);
}

void Transports::device_region_mapped(std::byte* base, uint64_t bytes, int fd) {
  if (!provider_) {
    throw std::runtime_error("a dma-buf needs RDMA, and this daemon has none: " + why_no_provider_);
  }
  provider_->add_region(base, bytes, fd);
}

void Transports::region_unmapped(std::byte* base) noexcept {
  if (provider_) provider_->remove_region(base);
}

void Transports::drop_reader(const std::string& node_id, Incarnation incarnation) {
  if (provider_) provider_->drop_reader(node_id, incarnation);
}

bool Transports::rail_reaches(HolderIndex peer) const {
  return provider_ && provider_->transport().reaches(peer);
}

void Transports::admit_readers(bool on) {
  if (provider_) provider_->admit_readers(on);
}

TransportOffers Transports::offers() const {
  return provider_ ? TransportOffers{{provider_->transport().name(), provider_->offer()}}
                   : TransportOffers{};
}

void Transports::notify(Notices& notices) {
  if (provider_) provider_->notify(notices, [this](HolderIndex peer) { return name_of(peer); });
}

std::vector<std::pair<std::string, LatencySnapshot>> Transports::rail_reads() const {
  if (!provider_) return {};
  return provider_->rail_reads();
}

std::string Transports::name_of(HolderIndex peer) const {
  for (const auto& node : nodes_.all()) {
    if (node.index == peer) return node.node_id;
  }
  return "";
}

std::string Transports::status_json() const {
  JsonWriter json;
  json.open('{').field("protocol", provider_ ? provider_->transport().name() : "tcp");
  json.field("why", provider_ ? "" : why_no_provider_.c_str());
  json.field("fallback_reads", routed_counters_.fallback_reads.load());
  json.field("fallback_peers", routed_counters_.fallback_peers.load());
  json.key("rails").open('[');
  if (provider_) {
    provider_->write_rails(json, [this](HolderIndex peer) { return name_of(peer); });
  }
  return json.close(']').close('}').take();
}

}  // namespace peercached
