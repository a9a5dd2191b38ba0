#include "transfer/tcp/tcp_engine.h"

#include <poll.h>

#include <algorithm>
#include <deque>

#include "common/mutex.h"
#include "transfer/known_peers.h"
#include "transfer/tcp/lane.h"
#include "transfer/tcp/movers.h"
#include "transfer/tcp/peer_channels.h"
#include "transfer/tcp/peer_read.h"
#include "transfer/tcp/question_lane.h"
#include "transfer/wake_fds.h"

namespace peercached {
namespace {

using tcp::HoldQuestion;
using tcp::Lane;
using tcp::LookupQuestion;
using tcp::PeerChannels;
using tcp::PeerRead;
using tcp::PushQuestion;
using tcp::QuestionLane;
using tcp::ReadCall;

// Below this, the wake-up of another core costs more than a second lane saves.
constexpr uint64_t kBytesPerLaneMin = 1ull << 20;

// How often a question looks for a channel while all are lent to reads.
constexpr auto kChannelWait = std::chrono::milliseconds(1);

// The lanes that one thread of a call drives.
struct Share {
  std::vector<Lane*> lanes;
  int wake_fd = -1;
};

// Counts the movers that still work for one call.
class Helpers {
 public:
  ~Helpers() { wait(); }  // also after an exception: they use the caller's stack and memory
  void joins() {
    MutexLock lock(mutex_);
    ++working_;
  }
  void leaves() {
    // Notify under the lock: the waiter destroys this object as soon as it can.
    MutexLock lock(mutex_);
    if (--working_ == 0) done_.notify_one();
  }
  void wait() {
    MutexLock lock(mutex_);
    while (working_ > 0) done_.wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar done_;
  unsigned working_ GUARDED_BY(mutex_) = 0;
};

class TcpEngine final : public TransferEngine {
 public:
  TcpEngine(const TcpEngineConfig& config, PeerWatcher& watcher)
      : config_(config), watcher_(watcher), dial_(config), movers_(config.movers) {}

  void add_peer(HolderIndex index, const PeerEndpoint& endpoint) override {
    if (peers_.endpoint(index) == endpoint) return;  // reads in flight go on
    auto channels =
        std::make_shared<PeerChannels>(dial_.to(endpoint), config_.channels_per_peer_max);
    peers_.put(index, endpoint, std::move(channels));
  }

  void drop_peer(HolderIndex index) override { peers_.forget(index); }

  void read(std::span<ReadBatch> batches, Deadline deadline, WriteGate& gate,
            PageSink& sink) override {
    ReadCall call{deadline, gate, sink, watcher_};
    std::deque<PeerRead> reads;
    peers_.open(batches, [&](ReadBatch& batch, std::shared_ptr<PeerChannels> channels) {
      reads.emplace_back(call, batch, std::move(channels));
    });
    if (!deadline.passed()) {
      std::deque<Lane> lanes;
      open_lanes(call, reads, lanes);
      drive_all(call, reads, lanes);
    }
    for (PeerRead& read : reads) read.finish();
  }

  void hold(std::span<HoldBatch> batches, uint32_t hold_ms, Deadline deadline) override {
    std::deque<HoldQuestion> questions;
    for (HoldBatch& batch : batches) questions.emplace_back(batch, hold_ms);
    ask_all(questions, deadline, true);
  }

  void lookup(std::span<LookupBatch> batches, uint64_t view_number, Deadline deadline) override {
    std::deque<LookupQuestion> questions;
    for (LookupBatch& batch : batches) questions.emplace_back(batch, view_number);
    ask_all(questions, deadline, false);
  }

  void push(std::span<PushBatch> batches, Deadline deadline) override {
    std::deque<PushQuestion> questions;
    for (PushBatch& batch : batches) questions.emplace_back(batch);
    ask_all(questions, deadline, false);
  }

  std::vector<PeerHealth> health() const override { return peers_.health(name()); }

  const char* name() const override { return "tcp"; }

 private:
  void open_lanes(ReadCall& call, std::deque<PeerRead>& reads, std::deque<Lane>& lanes) const {
    for (PeerRead& read : reads) {
      if (read.settled()) continue;  // nothing to ask for
      const uint64_t want = std::clamp<uint64_t>(read.bytes() / kBytesPerLaneMin, 1,
                                                 std::max(config_.channels_per_read_max, 1u));
      const size_t before = lanes.size();
      lanes.emplace_back(call, read, read.channels().lease());
      while (lanes.size() - before < want) {
        tcp::Channel* channel = read.channels().lease();
        if (channel == nullptr) break;  // go on with fewer lanes
        lanes.emplace_back(call, read, channel);
      }
      read.split_for(lanes.size() - before);
    }
  }

  // `silence_is_trouble`: report a peer that sent nothing until the deadline.
  template <typename Questions>
  void ask_all(Questions& questions, Deadline deadline, bool silence_is_trouble) {
    const TimePoint started = Clock::now();
    std::deque<QuestionLane> lanes;
    for (tcp::Question& question : questions) {
      auto channels = peers_.find(question.peer, question.incarnation);
      if (channels) lanes.emplace_back(question, std::move(channels));
    }
    drive(lanes, deadline);
    for (const QuestionLane& lane : lanes) {
      const tcp::Question& asked = lane.question();
      Trouble trouble;
      if (lane.finished()) {
        trouble = lane.trouble();
      } else if (silence_is_trouble) {
        trouble = lane.silence(started);
      }
      if (!trouble.empty()) watcher_.peer_trouble(asked.peer, asked.incarnation, trouble);
    }
  }

  static void drive(std::deque<QuestionLane>& lanes, Deadline deadline) {
    std::vector<pollfd> waits(lanes.size(), pollfd{-1, 0, 0});  // by lane
    while (true) {
      const TimePoint now = Clock::now();
      TimePoint until = deadline.at;
      bool waiting = false;
      for (size_t i = 0; i < lanes.size(); ++i) {
        QuestionLane& lane = lanes[i];
        pollfd& wait = waits[i];
        const bool idle =
            wait.fd >= 0 && wait.revents == 0 && now < lane.until(deadline.at) && !lane.has_more();
        if (!lane.finished() && !idle) lane.proceed();
        wait = {-1, 0, 0};
        if (lane.finished()) continue;
        waiting = true;
        until = std::min(until, lane.waiting() ? now + kChannelWait : lane.until(deadline.at));
        if (lane.has_more()) until = now;
        if (!lane.waiting()) wait = {lane.fd(), lane.poll_events(), 0};
      }
      if (!waiting || now >= deadline.at) return;
      const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(
          std::max(until - now, Clock::duration::zero()));
      const timespec timeout{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
      (void)::ppoll(waits.data(), waits.size(), &timeout, nullptr);
    }
  }

  void drive_all(ReadCall& call, const std::deque<PeerRead>& reads, std::deque<Lane>& lanes) {
    uint64_t total_bytes = 0;
    for (const PeerRead& read : reads) total_bytes += read.bytes();
    const size_t threads = std::min<size_t>(
        {lanes.size(), 1 + config_.movers, std::max<uint64_t>(total_bytes / kBytesPerLaneMin, 1)});
    std::vector<Share> shares(std::max<size_t>(threads, 1));
    for (size_t i = 0; i < lanes.size(); ++i) {
      shares[i % shares.size()].lanes.push_back(&lanes[i]);
    }
    const bool needs_waking =
        shares.size() > 1 ||
        std::any_of(lanes.begin(), lanes.end(), [](const Lane& lane) { return lane.waiting(); });
    for (Share& share : shares) {
      if (!needs_waking) break;
      share.wake_fd = wake_fds_.take();
      if (share.wake_fd >= 0) call.wake_fds.push_back(share.wake_fd);
    }
    Helpers helpers;
    for (size_t i = 1; i < shares.size(); ++i) {
      Share& share = shares[i];
      helpers.joins();
      const bool taken = share.wake_fd >= 0 && movers_.try_run([&call, &share, &helpers] {
        tcp::drive(call, share.lanes, share.wake_fd);
        helpers.leaves();
      });
      if (taken) continue;
      // All movers are busy with other reads, so this thread drives these lanes, too.
      helpers.leaves();
      shares[0].lanes.insert(shares[0].lanes.end(), share.lanes.begin(), share.lanes.end());
    }
    tcp::drive(call, shares[0].lanes, shares[0].wake_fd);
    helpers.wait();
    for (const Share& share : shares) wake_fds_.give_back(share.wake_fd);
  }

  const TcpEngineConfig config_;
  PeerWatcher& watcher_;
  const tcp::Dial dial_;
  WakeFds wake_fds_;
  tcp::Movers movers_;
  KnownPeers<PeerChannels> peers_;
};

}  // namespace

std::unique_ptr<TransferEngine> make_tcp_engine(const TcpEngineConfig& config,
                                                PeerWatcher& watcher) {
  return std::make_unique<TcpEngine>(config, watcher);
}

}  // namespace peercached
