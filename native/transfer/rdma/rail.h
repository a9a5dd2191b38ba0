// One rail: an opened device and port, with what every queue pair on it shares.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "common/clock.h"
#include "common/histogram.h"
#include "transfer/rdma/handshake.h"
#include "transfer/rdma/ports.h"
#include "transfer/rdma/verbs.h"

namespace peercached::rdma {

// How packets travel: from the configuration, the same for all rails.
struct LinkSettings {
  int mtu_bytes = 0;  // 0: the port's active one
  uint8_t service_level = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 64;
  uint16_t pkey = 0xffff;
  uint8_t timeout = 16;     // 4.096 us * 2^n until a lost packet is sent again
  uint8_t retry_count = 6;  // soft-RoCE takes 7 for: for ever
  unsigned rd_atomic = 0;   // READs in flight per queue pair; 0: what both devices can
};

struct RailCounters {
  std::atomic<uint64_t> pages{0}, bytes{0}, errors{0}, channels{0}, responders{0};
  ReadLatency chains;  // from the first doorbell to the last header
};

// How a rail is reached, and reaches others.
struct RailAddress {
  GidEntry gid;
  uint16_t lid = 0;
  uint16_t pkey_index = 0;
  uint8_t mtu = IBV_MTU_1024;  // an ibv_mtu
  friend bool operator==(const RailAddress&, const RailAddress&) = default;
};

class Rail {
 public:
  // Opens the device; the rail is down if the port is not usable now. Throws std::runtime_error:
  // gone, not permitted, a setting that the port cannot do.
  Rail(uint32_t index, const Port& port, const LinkSettings& settings, const RailPolicy& policy);

  const uint32_t index;
  const Port port;  // as it was then
  const LinkSettings settings;
  RailCounters counters;

  ibv_context* context() const { return context_.get(); }
  ibv_pd* pd() const { return pd_.get(); }
  const ibv_device_attr& limits() const { return limits_; }
  std::string name() const;
  RailAddress address() const;
  double rate_gbps() const { return rate_gbps_.load(std::memory_order_relaxed); }

  // Whether the port works now. A rail that is out takes no new channels.
  bool up() const { return up_.load(std::memory_order_acquire); }
  std::string why_down() const;
  void set_up();
  void set_down(const std::string& why);
  // The device says that it is lost. Ports of such a device may read as active all the same: the
  // rail stays out for a while, longer each time, and until the device works again.
  void set_failed(const std::string& why);
  // Whether a rail that is out can be set up. Makes a queue pair to find out.
  bool recovered();

  struct Look {
    std::string why_not;  // it cannot be used; empty: it can
    bool moved = false;   // it has another address, which it takes from now on
  };
  // Asks the device: addresses come and go while we run, and so do the places they have in its
  // table.
  Look look();

  // Queue pairs of this rail, in state INIT; `remote_read` for the holder's end.
  QueuePair make_queue_pair(ibv_cq* queue, unsigned sends_max, unsigned pieces_max,
                            bool remote_read) const;
  // What to tell the other side about one of them.
  ChannelEnd describe(const ibv_qp& qp, uint32_t psn) const;
  // INIT -> RTR: ready to answer `reader`.
  void answer(ibv_qp* qp, const ChannelEnd& own, const ChannelEnd& reader) const;
  // INIT -> RTR -> RTS: ready to read from `holder`.
  void connect(ibv_qp* qp, const ChannelEnd& own, const ChannelEnd& holder) const;

 private:
  // Throws std::runtime_error: the port is not usable, or has not the partition.
  RailAddress address_at(const Port& now) const;
  void to_ready_to_receive(ibv_qp* qp, const ChannelEnd& own, const ChannelEnd& other,
                           uint8_t reads) const;

  Context context_;
  ProtectionDomain pd_;
  ibv_device_attr limits_{};
  const RailPolicy policy_;
  RailAddress address_;
  std::atomic<double> rate_gbps_{0};
  std::atomic<bool> up_{true};
  mutable std::mutex mutex_;
  std::string why_down_;
  TimePoint retry_at_{};
  std::chrono::milliseconds backoff_{0};
};

uint32_t random_psn();

}  // namespace peercached::rdma
