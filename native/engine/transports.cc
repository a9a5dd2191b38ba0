#include "engine/transports.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>

#include "common/json.h"
#include "transfer/fault/fault.h"

namespace peercached {

namespace {

// A connect id names a peer and one of the channels to it.
uint64_t connect_id_of(HolderIndex peer, uint32_t channel) {
  return static_cast<uint64_t>(peer) << 32 | channel;
}
HolderIndex peer_of(uint64_t connect_id) { return static_cast<HolderIndex>(connect_id >> 32); }
uint32_t channel_of(uint64_t connect_id) { return static_cast<uint32_t>(connect_id); }

struct ConnectEvent {
  ChannelQuestion head;
  rdma::ChannelEnd own;
};
static_assert(sizeof(ConnectEvent) == 56);

void check_that_one_is_up(std::span<const std::unique_ptr<rdma::Rail>> rails) {
  std::string all;
  for (const auto& rail : rails) {
    if (rail->up()) return;
    all += (all.empty() ? "" : "; ") + rail->name() + ": " + rail->why_down();
  }
  throw std::runtime_error("no RDMA port can be used: " + all);
}

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
  fabric_ = make_fabric(config, pool);
  if (fabric_) {
    engine_ = make_routed_engine(
        fabric_->engine(), std::move(engine_),
        config.protocol == Protocol::rdma ? Unreached::fail : Unreached::use_other,
        routed_counters_);
  }
  const FaultPlan plan = parse_fault_plan(config.faults);
  if (plan.any()) engine_ = make_faulty(std::move(engine_), plan, *this);
}

std::unique_ptr<rdma::Fabric> Transports::make_fabric(const EngineConfig& config,
                                                      const Pool& pool) {
  if (config.protocol == Protocol::tcp) {
    why_no_rdma_ = "protocol = \"tcp\"";
    return nullptr;
  }
  rdma::FabricConfig fabric;
  fabric.policy.device_names = config.device_names;
  fabric.policy.gid_index = config.gid_index;
  fabric.policy.host = config.data_host;
  fabric.link = config.link;
  fabric.incarnation = config.incarnation;
  fabric.engine = {config.channels_per_peer, config.protocol == Protocol::automatic};
  rdma::Connector& connector = *this;
  try {
    auto made = std::make_unique<rdma::Fabric>(fabric, pool.base(), pool.size_bytes(), connector);
    if (config.protocol == Protocol::rdma) check_that_one_is_up(made->rails());
    return made;
  } catch (const std::runtime_error& error) {
    if (config.protocol == Protocol::rdma) {
      throw std::runtime_error(std::string("protocol = \"rdma\": ") + error.what() +
                               " (protocol = \"auto\" would go on with TCP)");
    }
    why_no_rdma_ = error.what();
    return nullptr;
  }
}

void Transports::peer_trouble(HolderIndex peer, Incarnation incarnation, const Trouble& what) {
  if (nodes_.incarnation(peer) != incarnation) return;  // that process is gone anyway
  nodes_.set_suspect(peer, true);
  const PeerTrouble event{incarnation, peer, what.token_unknown};
  std::vector<std::byte> payload(sizeof event + what.text.size());
  std::memcpy(payload.data(), &event, sizeof event);
  std::memcpy(payload.data() + sizeof event, what.text.data(), what.text.size());
  control_.post(EventKind::peer_trouble, payload);
}

bool Transports::connect(HolderIndex peer, const rdma::ChannelEnd& own,
                         std::span<const uint32_t> closed) {
  const ConnectEvent event{{peer, {}, connect_id_of(peer, own.channel)}, own};
  std::vector<std::byte> payload(sizeof event + closed.size_bytes());
  std::memcpy(payload.data(), &event, sizeof event);
  const auto numbers = std::as_bytes(closed);  // no memcpy: an empty span may have no address
  std::copy(numbers.begin(), numbers.end(), payload.begin() + sizeof event);
  return control_.post(EventKind::connect_channel, payload);
}

void Transports::channel_connected(uint64_t connect_id, std::span<const std::byte> answer) {
  if (!fabric_) return;
  const HolderIndex peer = peer_of(connect_id);
  try {
    fabric_->engine().connected(peer, channel_of(connect_id), rdma::unpack_answer(answer));
  } catch (const std::invalid_argument& error) {
    fabric_->engine().refused(peer, channel_of(connect_id), error.what());
  }
}

void Transports::channel_refused(uint64_t connect_id, const std::string& why) {
  if (fabric_) fabric_->engine().refused(peer_of(connect_id), channel_of(connect_id), why);
}

std::vector<std::byte> Transports::accept_channel(const std::string& node_id,
                                                  Incarnation incarnation,
                                                  std::span<const std::byte> offer,
                                                  std::span<const uint32_t> closed) {
  if (!fabric_) throw std::runtime_error(node_id_ + " has no RDMA: " + why_no_rdma_);
  return rdma::pack(
      fabric_->responder().accept(node_id, incarnation, rdma::unpack_end(offer), closed));
}

void Transports::region_mapped(std::byte* base, uint64_t bytes) {
  if (fabric_) fabric_->regions().add(base, bytes);
}

void Transports::device_region_mapped(std::byte* base, uint64_t bytes, int fd) {
  if (!fabric_) {
    throw std::runtime_error("a dma-buf needs RDMA, and this daemon has none: " + why_no_rdma_);
  }
  fabric_->regions().add_dma_buf(base, bytes, fd);
}

void Transports::region_unmapped(std::byte* base) noexcept {
  if (fabric_) fabric_->regions().remove(base);
}

void Transports::drop_reader(const std::string& node_id, Incarnation incarnation) {
  if (fabric_) fabric_->responder().drop_reader(node_id, incarnation);
}

void Transports::drop_readers() {
  if (fabric_) fabric_->responder().close();
}

std::span<const std::unique_ptr<rdma::Rail>> Transports::rails() const {
  return fabric_ ? fabric_->rails() : std::span<const std::unique_ptr<rdma::Rail>>{};
}

void Transports::tell(Notices& notices) {
  if (fabric_ && rail_watch_.due()) rail_watch_.tell(rails_now(), notices);
}

std::vector<RailNow> Transports::rails_now() const {
  std::vector<RailNow> all;
  if (!fabric_) return all;
  for (const auto& rail : fabric_->rails()) {
    all.push_back({rail->name(), rail->why_down(), rail->address(), {}});
  }
  std::map<HolderIndex, std::string> names;
  for (const auto& node : nodes_.all()) names[node.index] = node.node_id;
  for (const auto& [peer, rail, what] : fabric_->engine().troubles()) {
    if (names.contains(peer)) all[rail].doubted.emplace(names[peer], what);
  }
  return all;
}

std::string Transports::status_json() const {
  JsonWriter json;
  json.open('{').field("protocol", fabric_ ? "rdma" : "tcp");
  json.field("why", fabric_ ? "" : why_no_rdma_.c_str());
  json.field("fallback_reads", routed_counters_.fallback_reads.load());
  json.field("fallback_peers", routed_counters_.fallback_peers.load());
  const std::vector<RailNow> now = rails_now();
  json.key("rails").open('[');
  for (size_t i = 0; i < rails().size(); ++i) {
    const rdma::Rail& rail = *rails()[i];
    const rdma::Port& port = rail.port;
    const rdma::RailAddress& address = now[i].address;
    json.open('{').field("rail", rail.index).field("device", port.device);
    json.field("port", port.number).field("gid", rdma::text_of(address.gid.gid));
    json.field("gid_index", address.gid.index).field("netdev", address.gid.netdev);
    json.field("mtu", 128 << address.mtu).field("rate_gbps", rail.rate_gbps());
    json.field("numa_node", port.numa_node).field("up", rail.up()).field("why", now[i].why_down);
    json.field("registered_bytes", fabric_->registered_bytes());
    json.field("channels", rail.counters.channels.load());
    json.field("responders", rail.counters.responders.load());
    json.field("pages", rail.counters.pages.load()).field("bytes", rail.counters.bytes.load());
    json.field("errors", rail.counters.errors.load());
    json.key("doubted").open('[');
    for (const auto& [peer, why] : now[i].doubted) {
      json.open('{').field("node_id", peer).field("why", why).close('}');
    }
    json.close(']').close('}');
  }
  return json.close(']').close('}').take();
}

}  // namespace peercached
