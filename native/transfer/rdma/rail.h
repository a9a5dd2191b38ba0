// One rail: an opened device and port, and all that its queue pairs share.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "common/clock.h"
#include "common/histogram.h"
#include "common/mutex.h"
#include "transfer/rdma/handshake.h"
#include "transfer/rdma/ports.h"
#include "transfer/rdma/verbs.h"

namespace peercached::rdma {

// Link settings from the configuration, the same for all rails.
struct LinkSettings {
  int mtu_bytes = 0;  // 0: the port's active MTU
  uint8_t service_level = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 64;
  uint16_t pkey = 0xffff;
  uint8_t timeout = 16;     // 4.096 us * 2^n until a retransmission
  uint8_t retry_count = 6;  // 7 means for ever on soft-RoCE
};

struct RailCounters {
  std::atomic<uint64_t> pages{0}, bytes{0}, errors{0}, channels{0}, responders{0};
  ReadLatency chains;  // from the payload's doorbell to the last header
};

// The local addressing of a rail, for its queue pairs and for its peers.
struct RailAddress {
  GidEntry gid;
  uint16_t lid = 0;
  uint16_t pkey_index = 0;
  uint8_t mtu = IBV_MTU_1024;  // an ibv_mtu
  friend bool operator==(const RailAddress&, const RailAddress&) = default;
};

// The way to a peer's port from one of ours, with its GID at this index.
ibv_ah_attr path_to(const ChannelEnd& other, int port, int gid_index, const LinkSettings& settings);

class Rail {
 public:
  // Opens the device. The rail starts down if the port is not usable now. Throws std::runtime_error
  // if the device is gone or not permitted, or the port does not support a setting.
  Rail(uint32_t index, const Port& port, const LinkSettings& settings, const RailPolicy& policy);

  const uint32_t index;
  const Port port;  // as it was at the start
  const LinkSettings settings;
  RailCounters counters;

  ibv_context* context() const { return context_.get(); }
  ibv_pd* pd() const { return pd_.get(); }
  const ibv_device_attr& limits() const { return limits_; }
  std::string name() const { return port.device + ":" + std::to_string(port.number); }
  RailAddress address() const;
  double rate_gbps() const { return rate_gbps_.load(std::memory_order_relaxed); }

  // Whether the port works now. A rail that is down takes no new channels.
  bool up() const { return up_.load(std::memory_order_acquire); }
  std::string why_down() const;
  void set_up() { up_.store(true, std::memory_order_release); }
  void set_down(const std::string& why);
  // The device reports a fatal error. Its ports may still read as active. So the rail stays down
  // for a while (with backoff), and until the device works again.
  void set_failed(const std::string& why);
  // Whether a rail that is down works again. Makes a queue pair to find out.
  bool recovered();

  struct Look {
    std::string why_not;  // why the rail cannot be used; empty: it can
    bool moved = false;   // the address has changed; the rail uses the new one from now on
  };
  // Queries the device, because addresses and their table indices change at run time.
  Look look();

  // Makes a queue pair of this rail in state INIT; `remote_read` for the holder's end.
  QueuePair make_queue_pair(ibv_cq* queue, unsigned sends_max, unsigned pieces_max,
                            bool remote_read) const;
  // The description of such a queue pair for the other side.
  ChannelEnd describe(const ibv_qp& qp, uint32_t psn) const;
  // INIT -> RTR: ready to answer `reader`.
  void answer(ibv_qp* qp, const ChannelEnd& own, const ChannelEnd& reader) const;
  // INIT -> RTR -> RTS: ready to read from `holder`.
  void connect(ibv_qp* qp, const ChannelEnd& own, const ChannelEnd& holder) const;

 private:
  // Throws std::runtime_error if the port is not usable or lacks the partition.
  RailAddress address_at(const Port& now) const;
  void to_ready_to_receive(ibv_qp* qp, const ChannelEnd& own, const ChannelEnd& other,
                           uint8_t reads) const;

  Context context_;
  ProtectionDomain pd_;
  ibv_device_attr limits_{};
  const RailPolicy policy_;
  std::atomic<double> rate_gbps_{0};
  std::atomic<bool> up_{true};
  mutable Mutex mutex_;
  RailAddress address_ GUARDED_BY(mutex_);
  std::string why_down_ GUARDED_BY(mutex_);
  TimePoint retry_at_ GUARDED_BY(mutex_){};
  std::chrono::milliseconds backoff_ GUARDED_BY(mutex_){0};
};

uint32_t random_psn();

}  // namespace peercached::rdma
