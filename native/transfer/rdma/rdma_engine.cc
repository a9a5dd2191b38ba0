#include "transfer/rdma/rdma_engine.h"

#include <poll.h>

#include <algorithm>
#include <deque>

#include "common/event_fd.h"
#include "transfer/known_peers.h"
#include "transfer/rdma/lane.h"
#include "transfer/rdma/patience.h"
#include "transfer/wake_fds.h"

namespace peercached::rdma {
namespace {

// Below this, a second channel saves nothing.
constexpr uint64_t kBytesPerLaneMin = 1ull << 20;
constexpr size_t kLanesPerRailMax = 2;
// With many readers of one holder, each may have to wait this long for one chain.
constexpr std::chrono::milliseconds kLateMin{100};
// How soon a worker's fence is noticed while READs are in flight.
constexpr int kFenceCheckMs = 10;

class Reading final : public RdmaEngine {
 public:
  Reading(const RdmaEngineConfig& config, std::span<const std::unique_ptr<Rail>> rails,
          const MemoryTable& memory, ChannelRequests& requests)
      : config_(config), rails_(rails), memory_(memory), requests_(requests) {}

  void add_peer(HolderIndex index, const PeerEndpoint& endpoint) override {
    const auto known = peers_.endpoint(index);
    if (known && known->incarnation == endpoint.incarnation) return;  // reads in flight go on
    auto channels = !offered_by(endpoint) ? nullptr
                                          : std::make_shared<PeerChannels>(
                                                index, endpoint.incarnation, rails_,
                                                config_.channels_max, requests_, next_channel_);
    peers_.put(index, endpoint, std::move(channels));
  }

  void drop_peer(HolderIndex index) override { peers_.forget(index); }

  bool reaches(HolderIndex index) const override {
    const auto channels = peers_.find(index);
    return channels && channels->usable();
  }

  void connected(HolderIndex index, uint32_t channel, ChannelAnswer answer) override {
    if (auto channels = peers_.find(index)) channels->connected(channel, std::move(answer));
  }

  void refused(HolderIndex index, uint32_t channel, const std::string& why) override {
    if (auto channels = peers_.find(index)) channels->refused(channel, why);
  }

  bool prove_doubted() override {
    bool out = false;
    for (const auto& [peer, channels] : peers_.all()) {
      (void)channels->usable();
      out |= channels->proving();
    }
    return out;
  }

  void leave_rail(const Rail& rail) override {
    for (const auto& [peer, channels] : peers_.all()) channels->leave_rail(rail);
  }

  void read(std::span<ReadBatch> batches, Deadline deadline, WriteGate& gate,
            PageSink& sink) override {
    ReadCall call{deadline, gate, sink, memory_, config_.tcp_follows, late_after(deadline)};
    std::deque<PeerRead> reads;
    peers_.open(batches, [&](ReadBatch& batch, std::shared_ptr<PeerChannels> channels) {
      reads.emplace_back(call, batch, std::move(channels)).register_all(rails_);
    });
    const int wake_fd = wake_fds_.take();
    if (wake_fd < 0) call.stopped = PageStatus::error;  // out of descriptors
    {
      std::deque<Lane> lanes;
      open_lanes(call, reads, lanes, wake_fd);
      drive(call, reads, lanes, wake_fd);
      // Break off all before fencing each, so that they drain in parallel.
      for (Lane& lane : lanes) lane.break_off();
    }
    wake_fds_.give_back(wake_fd);
    for (PeerRead& read : reads) read.finish();
  }

  std::vector<RailTrouble> troubles() const override {
    std::vector<RailTrouble> all;
    for (const auto& [peer, channels] : peers_.all()) channels->add_troubles(all);
    return all;
  }

  std::vector<PeerHealth> health() const override { return peers_.health(name()); }

  const char* name() const override { return "rdma"; }

 private:
  // Longer than two retransmissions, but early enough to leave most of the time for another way.
  Clock::duration late_after(Deadline deadline) const {
    const Clock::duration share = std::max(deadline.at - Clock::now(), Clock::duration::zero()) / 4;
    const uint8_t exponent = rails_[0]->settings.timeout;
    const auto twice = std::chrono::microseconds(2 * (4096ull << exponent) / 1000);
    // 0: the devices never retransmit.
    return std::max<Clock::duration>(
        kLateMin, exponent == 0 ? share : std::min<Clock::duration>(share, twice));
  }

  void open_lanes(ReadCall& call, std::deque<PeerRead>& reads, std::deque<Lane>& lanes,
                  int wake_fd) {
    for (PeerRead& read : reads) {
      const auto most = rails_.size() * std::min<size_t>(kLanesPerRailMax, config_.channels_max);
      const auto want = std::clamp<uint64_t>(read.bytes() / kBytesPerLaneMin, 1, most);
      read.split_for(want);
      const std::vector<uint32_t> rails = rails_near(read);
      for (uint64_t i = 0; i < want; ++i) {
        lanes.emplace_back(call, read, rails[i % rails.size()], i == 0, wake_fd);
      }
    }
  }

  // Rails in order of preference: those near the worker's memory first. Each read starts with
  // another of them, to spread the load.
  std::vector<uint32_t> rails_near(const PeerRead& read) {
    const unsigned turn = turn_.fetch_add(1, std::memory_order_relaxed);
    std::vector<uint32_t> order(rails_.size());
    for (uint32_t i = 0; i < order.size(); ++i) {
      order[i] = static_cast<uint32_t>((turn + i) % order.size());
    }
    const int node = read.numa_node();
    std::stable_partition(order.begin(), order.end(), [&](uint32_t rail) {
      return node < 0 || rails_[rail]->port.numa_node == node;
    });
    return order;
  }

  void drive(ReadCall& call, std::deque<PeerRead>& reads, std::deque<Lane>& lanes, int wake_fd) {
    std::vector<pollfd> sleepers;
    while (!call.over() && !call.deadline.passed() && !call.gate.fenced()) {
      bool progress = false, working = false;
      for (Lane& lane : lanes) {
        progress |= lane.proceed();
        working |= !lane.finished();
      }
      if (!working) break;
      if (!progress && !look(lanes, call)) sleep(lanes, call, wake_fd, sleepers);
    }
    if (call.gate.fenced()) call.stopped = PageStatus::deadline;
    if (call.over() || call.deadline.passed()) return;
    for (PeerRead& read : reads) read.give_up();
  }

  // Polls for a limited span. True: a lane made progress.
  bool look(std::deque<Lane>& lanes, const ReadCall& call) {
    const bool reading =
        std::any_of(lanes.begin(), lanes.end(), [](const Lane& lane) { return lane.reading(); });
    const auto span = patience_.span();
    if (!reading || span.count() == 0) return false;
    const TimePoint until = std::min(Clock::now() + span, call.deadline.at);
    do {
      for (Lane& lane : lanes) {
        if (!lane.reading() || !lane.proceed()) continue;
        patience_.paid();
        return true;
      }
    } while (Clock::now() < until);
    patience_.did_not_pay();
    return false;
  }

  static void sleep(std::deque<Lane>& lanes, const ReadCall& call, int wake_fd,
                    std::vector<pollfd>& sleepers) {
    sleepers.assign(1, {wake_fd, POLLIN, 0});
    for (Lane& lane : lanes) {
      if (!lane.reading()) continue;
      lane.arm();
      sleepers.push_back({lane.fd(), POLLIN, 0});
    }
    // Completions from before arming raise no event, so poll once more.
    bool progress = false;
    for (Lane& lane : lanes) progress |= lane.proceed();
    if (progress) return;
    Deadline next = call.deadline;
    for (const Lane& lane : lanes) next.at = std::min(next.at, lane.waits_until());
    const int left_ms = next.remaining_ms();
    const int wait_ms = call.chains == 0 ? left_ms : std::min(left_ms, kFenceCheckMs);
    if (::poll(sleepers.data(), sleepers.size(), wait_ms) <= 0) return;
    if (sleepers[0].revents != 0) hush(wake_fd);
    for (Lane& lane : lanes) {
      if (lane.reading()) lane.take_events();
    }
  }

  const RdmaEngineConfig config_;
  const std::span<const std::unique_ptr<Rail>> rails_;
  const MemoryTable& memory_;
  ChannelRequests& requests_;
  std::atomic<uint32_t> next_channel_{1};
  std::atomic<unsigned> turn_{0};
  WakeFds wake_fds_;
  Patience patience_;
  KnownPeers<PeerChannels> peers_;
};

}  // namespace

std::unique_ptr<RdmaEngine> make_rdma_engine(const RdmaEngineConfig& config,
                                             std::span<const std::unique_ptr<Rail>> rails,
                                             const MemoryTable& memory, ChannelRequests& requests) {
  return std::make_unique<Reading>(config, rails, memory, requests);
}

}  // namespace peercached::rdma
