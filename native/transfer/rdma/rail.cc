#include "transfer/rdma/rail.h"

#include <arpa/inet.h>
#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace peercached::rdma {
namespace {

constexpr std::chrono::milliseconds kBackoffMin{1000}, kBackoffMax{60'000};

Context open_by_name(const std::string& name) {
  const Verbs& verbs = Verbs::get();
  int count = 0;
  const DeviceList devices(verbs.get_device_list(&count));
  Context context;
  int error = ENODEV;
  for (int d = 0; devices && d < count; ++d) {
    if (name != verbs.get_device_name(devices.get()[d])) continue;
    context = Context(verbs.open_device(devices.get()[d]));
    error = errno;
  }
  if (!context) {
    throw VerbsError("opening RDMA device " + name +
                         " (the daemon's user needs read and write on /dev/infiniband/uverbs*)",
                     error);
  }
  return context;
}

uint16_t pkey_index_of(const Verbs& verbs, ibv_context* context, uint8_t port, uint16_t wanted) {
  __be16 key = 0;
  for (int i = 0; verbs.query_pkey(context, port, i, &key) == 0; ++i) {
    // The highest bit only tells full from limited membership of the partition.
    if ((ntohs(key) & 0x7fff) == (wanted & 0x7fff)) return static_cast<uint16_t>(i);
  }
  char text[8];
  std::snprintf(text, sizeof text, "0x%04x", wanted);
  throw std::runtime_error(std::string("its table has no partition ") + text +
                           ": correct rdma_pkey");
}

uint8_t as_enum(int mtu_bytes) {
  return static_cast<uint8_t>(std::bit_width(static_cast<unsigned>(mtu_bytes) / 128u) - 1);
}

void check_mtu(int wanted_bytes, int active_bytes, const std::string& name) {
  if (wanted_bytes <= active_bytes) return;
  throw std::runtime_error("rdma_mtu is " + std::to_string(wanted_bytes) + ", but " + name +
                           " runs at " + std::to_string(active_bytes) +
                           ": use 256, 512, 1024, 2048 or 4096 up to that, or raise the MTU of "
                           "its network interface");
}

}  // namespace

Rail::Rail(uint32_t index_, const Port& port_, const LinkSettings& settings_,
           const RailPolicy& policy)
    : index(index_), port(port_), settings(settings_), policy_(policy) {
  const Verbs& verbs = Verbs::get();
  context_ = open_by_name(port.device);
  if (verbs.query_device(context_.get(), &limits_) != 0) refused("querying " + name());
  pd_ = ProtectionDomain(verbs.alloc_pd(context_.get()));
  if (!pd_) refused("allocating a protection domain on " + name());
  const auto [why_not, moved] = look();
  if (why_not.empty()) {
    check_mtu(settings.mtu_bytes, 128 << address_.mtu, name());
  } else {
    set_down(why_not);
  }
}

RailAddress Rail::address() const {
  MutexLock lock(mutex_);
  return address_;
}

std::string Rail::why_down() const {
  MutexLock lock(mutex_);
  return up() ? "" : why_down_;
}

void Rail::set_down(const std::string& why) {
  MutexLock lock(mutex_);
  why_down_ = why;
  up_.store(false, std::memory_order_release);
}

void Rail::set_failed(const std::string& why) {
  MutexLock lock(mutex_);
  // Forget a failure of long ago: the backoff starts anew.
  const TimePoint now = Clock::now();
  if (now > retry_at_ + kBackoffMax) backoff_ = kBackoffMin / 2;
  backoff_ = std::clamp(backoff_ * 2, kBackoffMin, kBackoffMax);
  retry_at_ = now + backoff_;
  why_down_ = why;
  up_.store(false, std::memory_order_release);
}

bool Rail::recovered() {
  {
    MutexLock lock(mutex_);
    if (Clock::now() < retry_at_) return false;
  }
  if (!look().why_not.empty()) return false;
  const CompletionQueue queue(Verbs::get().create_cq(context_.get(), 1, nullptr, nullptr, 0));
  try {
    if (!queue) refused("creating a completion queue on " + name());
    make_queue_pair(queue.get(), 1, 1, false);
    return true;
  } catch (const VerbsError& error) {
    set_failed(std::string(error.what()) + ": if it stays so, restart this node");
    return false;
  }
}

Rail::Look Rail::look() {
  try {
    const Port now = look_at(context_.get(), port.device, port.number);
    const RailAddress after = address_at(now);
    rate_gbps_.store(now.rate_gbps, std::memory_order_relaxed);
    MutexLock lock(mutex_);
    const bool moved = !(after == address_);
    address_ = after;
    return {"", moved};
  } catch (const std::runtime_error& error) {
    return {error.what()};
  }
}

RailAddress Rail::address_at(const Port& now) const {
  const std::string why_not = why_unusable(now, policy_);
  if (!why_not.empty()) throw std::runtime_error(why_not);
  const RailAddress before = address();
  RailAddress after;
  after.gid = *choose_gid(now, policy_, &before.gid);
  after.lid = now.lid;
  after.pkey_index =
      pkey_index_of(Verbs::get(), context_.get(), static_cast<uint8_t>(port.number), settings.pkey);
  after.mtu = as_enum(settings.mtu_bytes == 0 ? now.mtu_bytes
                                              : std::min(settings.mtu_bytes, now.mtu_bytes));
  return after;
}

QueuePair Rail::make_queue_pair(ibv_cq* queue, unsigned sends_max, unsigned pieces_max,
                                bool remote_read) const {
  const Verbs& verbs = Verbs::get();
  ibv_qp_init_attr init{};
  init.send_cq = queue;
  init.recv_cq = queue;
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_wr = sends_max;
  init.cap.max_send_sge = pieces_max;
  init.cap.max_recv_wr = 1;
  init.cap.max_recv_sge = 1;
  QueuePair qp(verbs.create_qp(pd_.get(), &init));
  if (!qp) refused("creating a queue pair on " + name());
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = static_cast<uint8_t>(port.number);
  attr.pkey_index = address().pkey_index;
  attr.qp_access_flags = remote_read ? IBV_ACCESS_REMOTE_READ : 0;
  const int error = verbs.modify_qp(
      qp.get(), &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) throw VerbsError("preparing a queue pair on " + name(), error);
  return qp;
}

ChannelEnd Rail::describe(const ibv_qp& qp, uint32_t psn) const {
  const RailAddress own = address();
  ChannelEnd end;
  end.rail = index;
  end.qpn = qp.qp_num;
  end.psn = psn;
  end.lid = own.lid;
  end.mtu = own.mtu;
  const int reads = std::min(limits_.max_qp_init_rd_atom, limits_.max_qp_rd_atom);
  end.rd_atomic = static_cast<uint8_t>(std::clamp(reads, 1, 255));  // the device's most
  end.gid = own.gid.gid;
  end.link_layer = port.ethernet ? 2 : 1;
  return end;
}

ibv_ah_attr path_to(const ChannelEnd& other, int port, int gid_index,
                    const LinkSettings& settings) {
  ibv_ah_attr path{};
  path.port_num = static_cast<uint8_t>(port);
  path.dlid = other.lid;
  path.sl = settings.service_level;
  path.is_global = 1;
  std::memcpy(path.grh.dgid.raw, other.gid.data(), other.gid.size());
  path.grh.sgid_index = static_cast<uint8_t>(gid_index);
  path.grh.hop_limit = settings.hop_limit;
  path.grh.traffic_class = settings.traffic_class;
  return path;
}

void Rail::to_ready_to_receive(ibv_qp* qp, const ChannelEnd& own, const ChannelEnd& other,
                               uint8_t reads) const {
  if (own.link_layer != other.link_layer) {
    throw std::runtime_error(name() + " is " + (own.link_layer == 1 ? "InfiniBand" : "Ethernet") +
                             ", the peer's rail is not: order device_names alike on all nodes");
  }
  const RailAddress now = address();
  if (now.gid.gid != own.gid) {
    throw std::runtime_error(name() + " has another address since: " + text_of(now.gid.gid));
  }
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = static_cast<ibv_mtu>(std::min(own.mtu, other.mtu));
  attr.dest_qp_num = other.qpn;
  attr.rq_psn = other.psn;
  attr.max_dest_rd_atomic = reads;
  attr.min_rnr_timer = 12;
  attr.ah_attr = path_to(other, port.number, now.gid.index, settings);
  const int error =
      Verbs::get().modify_qp(qp, &attr,
                             IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) {
    throw VerbsError("reaching " + text_of(other.gid) + " from " + text_of(own.gid) + " on " +
                         name() + " (is there a route between the two?)",
                     error);
  }
}

void Rail::answer(ibv_qp* qp, const ChannelEnd& own, const ChannelEnd& reader) const {
  to_ready_to_receive(qp, own, reader, std::min(own.rd_atomic, reader.rd_atomic));
}

void Rail::connect(ibv_qp* qp, const ChannelEnd& own, const ChannelEnd& holder) const {
  to_ready_to_receive(qp, own, holder, 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = settings.timeout;
  attr.retry_cnt = settings.retry_count;
  attr.rnr_retry = 7;
  attr.sq_psn = own.psn;
  attr.max_rd_atomic = std::min(own.rd_atomic, holder.rd_atomic);
  const int error =
      Verbs::get().modify_qp(qp, &attr,
                             IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  if (error != 0) throw VerbsError("starting a queue pair on " + name(), error);
}

uint32_t random_psn() {
  uint32_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number) refused("getrandom");
  return number & 0xffffff;
}

}  // namespace peercached::rdma
