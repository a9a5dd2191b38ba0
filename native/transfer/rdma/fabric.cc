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
// How often to look for the answers to test READs, whose time counts.
constexpr int kProofLookMs = 10;

}  // namespace

Fabric::Fabric(const FabricConfig& config, std::byte* pool, uint64_t pool_bytes,
               Connector& connector) {
  RailPolicy policy = config.policy;
  policy.numa_node = numa_node_of(pool);
  const std::vector<Port> ports = list_ports();
  for (const Port& port : choose_rails(ports, policy)) {
    rails_.push_back(
        std::make_unique<Rail>(static_cast<uint32_t>(rails_.size()), port, config.link, policy));
    const int fd = rails_.back()->context()->async_fd;
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  }
  pool_ = std::make_unique<RegisteredMemory>(rails_, pool, pool_bytes, Purpose::publish);
  pool_->register_until({TimePoint::max()});
  regions_ = std::make_unique<MemoryTable>(rails_);
  responder_ = std::make_unique<Responder>(rails_, *pool_, config.incarnation);
  engine_ = make_rdma_engine(config.engine, rails_, *regions_, connector);
  watcher_ = named_thread("rdma watch", [this] { watch(); });
}

Fabric::~Fabric() {
  stopping_ = true;
  ring(wake_.get());
  watcher_.join();
}

void Fabric::connected(HolderIndex peer, uint32_t channel, ChannelAnswer answer) {
  engine_->connected(peer, channel, std::move(answer));
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

}  // namespace peercached::rdma
