// A holder and a reader in one process, each on its own soft-RoCE devices. Run by tests/rdma/vm.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/fault_guard.h"
#include "transfer/fixture.h"
#include "transfer/rdma/fabric.h"

namespace peercached::testing {

inline std::vector<std::string> devices() {
  std::vector<std::string> names;
  for (const rdma::Port& port : rdma::list_ports()) names.push_back(port.device);
  return names;
}

inline rdma::FabricConfig on(std::vector<std::string> names, Incarnation incarnation) {
  rdma::FabricConfig config;
  config.policy.device_names = std::move(names);
  config.incarnation = incarnation;
  return config;
}

class NoConnector : public ChannelRequests {
 public:
  bool request_channel(HolderIndex, uint32_t, std::span<const std::byte>,
                       std::span<const uint32_t>) override {
    return false;
  }
};

class RdmaHolder : public PagePool {
 public:
  RdmaHolder(uint64_t pool_bytes, std::vector<std::string> names,
             Incarnation incarnation_ = kHolderIncarnation, uint64_t first_bytes = UINT64_MAX)
      : PagePool(pool_bytes, incarnation_, first_bytes),
        fabric(on(std::move(names), incarnation), pool.base(), pool.size_bytes(),
               pool.ready_bytes(), connector_) {}

  void grow() {
    const auto bytes = pool.touch_more();
    ASSERT_TRUE(bytes);
    fabric.pool_grew(*bytes);
    pool.grow_to(*bytes);
  }

  PeerEndpoint endpoint() const {
    PeerEndpoint endpoint;
    endpoint.incarnation = incarnation;
    endpoint.transports = {{"rdma", ""}};
    return endpoint;
  }

 private:
  NoConnector connector_;

 public:
  rdma::Fabric fabric;
};

// A reader that connects on its own threads, like the control plane.
class RdmaReader : public ChannelRequests {
 public:
  RdmaReader(std::vector<std::string> names, unsigned channels_max = 8,
             rdma::LinkSettings link = {}, bool tcp_follows = false)
      : own_pool_(1 << 20, kReaderIncarnation),
        fabric(config(std::move(names), {channels_max, tcp_follows}, link), own_pool_.pool.base(),
               own_pool_.pool.size_bytes(), own_pool_.pool.ready_bytes(), *this) {}
  // Knows the holder.
  RdmaReader(RdmaHolder& holder, std::vector<std::string> names, unsigned channels_max = 8,
             rdma::LinkSettings link = {}, bool tcp_follows = false)
      : RdmaReader(std::move(names), channels_max, link, tcp_follows) {
    knows(holder);
  }
  ~RdmaReader() override {
    {
      std::lock_guard lock(mutex_);
      ended_ = true;  // the fabric, which ends later, may still want to prove a rail
    }
    wait();
  }

  void knows(RdmaHolder& holder) { knows(holder, holder.endpoint()); }
  void knows(RdmaHolder& holder, const PeerEndpoint& endpoint, HolderIndex peer = kPeer) {
    holders_[peer] = &holder;
    fabric.engine().add_peer(peer, endpoint);
  }
  void read(Reading& reading, int deadline_ms = patient_ms(10'000),
            Verify verify = Verify::checksum) {
    fabric.regions().add(reading.memory.data(), reading.memory.size());
    reading.read(fabric.engine(), deadline_ms, verify);
    fabric.regions().remove(reading.memory.data());
  }

  bool request_channel(HolderIndex peer, uint32_t, std::span<const std::byte> end,
                       std::span<const uint32_t> closed) override {
    const rdma::ChannelEnd own = rdma::unpack_end(end);
    std::lock_guard lock(mutex_);
    if (refuse || ended_) return false;
    threads_.emplace_back([this, peer, own, numbers = std::vector(closed.begin(), closed.end())] {
      if (hang) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(connect_ms));
      while (slow) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++connects;
      {
        std::lock_guard told_lock(told_mutex_);
        told_ = numbers;
      }
      try {
        if (unreachable) throw std::runtime_error("unreachable");
        auto answer = holders_.at(peer)->fabric.responder().accept("reader", kReaderIncarnation,
                                                                   own, numbers);
        // No such queue pair exists, so packets to it are lost without an error.
        if (peer == kPeer && (deaf_rails >> own.rail & 1) != 0) answer.end.qpn ^= 0x800000;
        fabric.channel_connected(peer, own.channel, rdma::pack(answer));
      } catch (const std::exception& error) {
        fabric.engine().refused(peer, own.channel, error.what());
      }
    });
    return true;
  }
  // The reasons why rails are doubted, by rail.
  std::vector<std::string> troubles() {
    std::vector<std::string> all;
    for (const auto& one : fabric.engine().troubles()) all.push_back(one.what);
    return all;
  }
  void wait() {
    std::vector<std::thread> ending;
    {
      std::lock_guard lock(
          mutex_);  // not while joining: connect() wants it with other mutexes held
      ending.swap(threads_);
    }
    for (std::thread& thread : ending) thread.join();
  }

  // The closed channels that the last connect reported.
  std::vector<uint32_t> told() const {
    std::lock_guard lock(told_mutex_);
    return told_;
  }

  std::atomic<bool> refuse{false}, hang{false}, slow{false}, unreachable{false};
  std::atomic<unsigned> connects{0};
  std::atomic<int> connect_ms{0};       // as if by a network
  std::atomic<unsigned> deaf_rails{0};  // to kPeer; a bit for each rail of the reader

 private:
  static rdma::FabricConfig config(std::vector<std::string> names,
                                   const rdma::RdmaEngineConfig& engine,
                                   const rdma::LinkSettings& link) {
    rdma::FabricConfig made = on(std::move(names), kReaderIncarnation);
    made.engine = engine;
    made.link = link;
    return made;
  }
  PagePool own_pool_;
  std::map<HolderIndex, RdmaHolder*> holders_;
  std::mutex mutex_;
  std::vector<std::thread> threads_;
  bool ended_ = false;
  mutable std::mutex told_mutex_;
  std::vector<uint32_t> told_;

 public:
  rdma::Fabric fabric;
};

class RdmaTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { install_fault_guard(); }
};

// Reads one page and returns its status.
inline PageStatus one_read(RdmaReader& reader, const RecordRow& row,
                           int deadline_ms = patient_ms(10'000)) {
  Reading reading({row});
  reader.read(reading, deadline_ms);
  return reading.ops[0].status;
}

// Reads these pages and checks their bytes.
inline void expect_read(RdmaReader& reader, const std::vector<RecordRow>& rows,
                        uint64_t first_number) {
  Reading reading(rows);
  reader.read(reading);
  expect_pages(reading, first_number);
}

}  // namespace peercached::testing
