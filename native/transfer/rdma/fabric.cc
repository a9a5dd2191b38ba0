#include "transfer/rdma/fabric.h"

#include <fcntl.h>
#include <poll.h>

#include <chrono>
#include <utility>

#include "common/thread_name.h"

namespace peercached::rdma {
namespace {

// Ports announce their changes, but some drivers forget to. So the ports are polled as well.
constexpr int kPortCheckMs = 1000;
// How often to look for the answers to test READs. Their time counts.
constexpr int kProofLookMs = 10;

void check_that_one_is_up(std::span<const std::unique_ptr<Rail>> rails) {
  std::string all;
  for (const auto& rail : rails) {
    if (rail->up()) return;
    all += (all.empty() ? "" : "; ") + rail->name() + ": " + rail->why_down();
  }
  throw std::runtime_error("no RDMA port can be used: " + all);
}

}  // namespace

ProviderChoice as_choice(const RailPolicy& policy, const LinkSettings& link) {
  return {"rdma", [=](const ProviderNeeds& needs) {
            FabricConfig config{policy,
                                link,
                                needs.incarnation,
                                {needs.channels_per_peer, !needs.demanded},
                                needs.demanded};
            config.policy.host = needs.host;
            return std::make_unique<Fabric>(config, needs.pool, needs.pool_bytes, needs.ready_bytes,
                                            needs.requests);
          }};
}

Fabric::Fabric(const FabricConfig& config, std::byte* pool, uint64_t pool_bytes,
               uint64_t ready_bytes, ChannelRequests& requests) {
  RailPolicy policy = config.policy;
  policy.numa_node = numa_node_of(pool);
  const std::vector<Port> ports = list_ports();
  for (const Port& port : choose_rails(ports, policy)) {
    rails_.push_back(
        std::make_unique<Rail>(static_cast<uint32_t>(rails_.size()), port, config.link, policy));
    const int fd = rails_.back()->context()->async_fd;
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  }
  if (config.must_be_up) check_that_one_is_up(rails_);
  pool_ = std::make_unique<RegisteredMemory>(rails_, pool, pool_bytes, Purpose::publish);
  pool_->register_first(ready_bytes);
  regions_ = std::make_unique<MemoryTable>(rails_);
  responder_ = std::make_unique<Responder>(rails_, *pool_, config.incarnation);
  engine_ = make_rdma_engine(config.engine, rails_, *regions_, requests);
  watcher_ = named_thread("rdma watch", [this] { watch(); });
}

Fabric::~Fabric() {
  stopping_ = true;
  ring(wake_.get());
  watcher_.join();
}

void Fabric::channel_connected(HolderIndex peer, uint32_t channel,
                               std::span<const std::byte> answer) {
  try {
    engine_->connected(peer, channel, unpack_answer(answer));
  } catch (const std::invalid_argument& error) {
    engine_->refused(peer, channel, error.what());
  }
  ring(wake_.get());  // test READs may be out now, and on an idle node nobody else looks for their
                      // answers
}

void Fabric::watch() {
  std::vector<pollfd> fds{{wake_.get(), POLLIN, 0}};
  for (const auto& rail : rails_) fds.push_back({rail->context()->async_fd, POLLIN, 0});
  TimePoint look_at{};
  bool proving = false;
  while (true) {
    const int ready = ::poll(fds.data(), fds.size(), proving ? kProofLookMs : kPortCheckMs);
    if (stopping_) return;
    if (fds[0].revents != 0) hush(wake_.get());
    const TimePoint now = Clock::now();
    if (ready > 0 || now >= look_at) {
      look_at = now + std::chrono::milliseconds(kPortCheckMs);
      for (size_t i = 0; i < rails_.size(); ++i) {
        const short announced = ready > 0 ? fds[i + 1].revents : short{0};
        if (announced != 0) handle_events(*rails_[i]);
        if ((announced & (POLLERR | POLLHUP | POLLNVAL)) != 0) fds[i + 1].fd = -1;  // for good
        look(*rails_[i]);
      }
    }
    proving = engine_->prove_doubted();
  }
}

void Fabric::look(Rail& rail) {
  if (!rail.up()) {
    if (rail.recovered()) rail.set_up();
    return;
  }
  const auto [why_not, moved] = rail.look();
  if (!why_not.empty()) take_out(rail, why_not);
  // The channels of the rail were made for the old address or MTU.
  if (moved) engine_->leave_rail(rail);
}

void Fabric::handle_events(Rail& rail) {
  const Verbs& verbs = Verbs::get();
  ibv_async_event event;
  while (verbs.get_async_event(rail.context(), &event) == 0) {
    const ibv_event_type type = event.event_type;
    verbs.ack_async_event(&event);
    happened(rail, type);
  }
}

void Fabric::happened(Rail& rail, ibv_event_type what) {
  const std::string why = Verbs::get().event_type_str(what);
  if (what == IBV_EVENT_PORT_ERR) take_out(rail, why);
  if (what != IBV_EVENT_DEVICE_FATAL) return;
  rail.set_failed(why);
  engine_->leave_rail(rail);
}

void Fabric::take_out(Rail& rail, const std::string& why) {
  rail.set_down(why);
  engine_->leave_rail(rail);
}

std::vector<RailNow> Fabric::rails_now(const NameOf& name_of) const {
  std::vector<RailNow> all;
  for (const auto& rail : rails_) {
    all.push_back({rail->name(), rail->why_down(), rail->address(), {}});
  }
  for (const auto& [peer, rail, what] : engine_->troubles()) {
    if (std::string name = name_of(peer); !name.empty()) {
      all[rail].doubted.emplace(std::move(name), what);
    }
  }
  return all;
}

void Fabric::write_rails(JsonWriter& json, const NameOf& name_of) const {
  const std::vector<RailNow> now = rails_now(name_of);
  for (size_t i = 0; i < now.size(); ++i) {
    const Rail& rail = *rails_[i];
    const Port& port = rail.port;
    const RailAddress& address = now[i].address;
    json.open('{').field("rail", rail.index).field("device", port.device);
    json.field("port", port.number).field("gid", text_of(address.gid.gid));
    json.field("gid_index", address.gid.index).field("netdev", address.gid.netdev);
    json.field("mtu", 128 << address.mtu).field("rate_gbps", rail.rate_gbps());
    json.field("numa_node", port.numa_node).field("up", rail.up()).field("why", now[i].why_down);
    json.field("registered_bytes", pool_->bytes() + regions_->bytes());
    json.field("channels", rail.counters.channels).field("responders", rail.counters.responders);
    json.field("pages", rail.counters.pages).field("bytes", rail.counters.bytes);
    json.field("errors", rail.counters.errors);
    json.key("doubted").open('[');
    for (const auto& [peer, why] : now[i].doubted) {
      json.open('{').field("node_id", peer).field("why", why).close('}');
    }
    json.close(']').close('}');
  }
}

std::vector<std::pair<std::string, LatencySnapshot>> Fabric::rail_reads() const {
  std::vector<std::pair<std::string, LatencySnapshot>> all;
  for (const auto& rail : rails_) {
    all.emplace_back(std::to_string(rail->index), rail->counters.chains.snapshot());
  }
  return all;
}

}  // namespace peercached::rdma
