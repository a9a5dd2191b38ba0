#include "transfer/tcp/follower.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "common/thread_name.h"

namespace peercached::tcp {
namespace {

// How long a busy holder may take beyond its wait for news, or between two parts of an answer.
constexpr auto kPatience = std::chrono::seconds(5);
constexpr auto kConnectAgain = std::chrono::seconds(1);
// Pause after the records of a holder did not fit.
constexpr auto kRoomAgain = std::chrono::seconds(30);
// Frames read from one holder before the others get their turn.
constexpr unsigned kFramesPerTurn = 16;

bool same(const Dial& a, const Dial& b) {
  return a.hello.expected == b.hello.expected && a.token == b.token && a.sealed == b.sealed &&
         a.address.bytes == b.address.bytes &&
         std::memcmp(&a.address.storage, &b.address.storage, a.address.bytes) == 0;
}

}  // namespace

// The channel to one holder. Never blocks.
class Follower::Lane {
 public:
  Lane(HolderIndex holder, Dial dial, const Follower& follower)
      : holder_(holder),
        dial_(std::move(dial)),
        table_(follower.table_),
        signs_(follower.signs_),
        watcher_(follower.watcher_),
        wait_(follower.wait_) {}

  void proceed(TimePoint now) {
    if (!channel_) {
      if (now < due_) return;
      channel_ = std::make_unique<Channel>(dial_);
    }
    channel_->catch_up();
    if (channel_->state() == Channel::State::broken) {
      // A channel that ends is no trouble if the next one works: the holder may be leaving.
      if (!greeted_) report(channel_->trouble());
      lose(now);
    } else if (channel_->state() == Channel::State::ready) {
      greeted_ = true;
      converse(now);
    } else {
      due_ = channel_->greeted_by();
    }
  }

  void rest(TimePoint now) {
    if (channel_) lose(now);
  }

  const Dial& dial() const { return dial_; }
  TimePoint due() const { return has_more() ? TimePoint{} : due_; }
  int fd() const { return channel_ ? channel_->fd() : -1; }
  short poll_events() const { return channel_->poll_events(); }

 private:
  void converse(TimePoint now) {
    if (!asked_) ask(now);
    for (unsigned frames = 0; channel_ && frames < kFramesPerTurn && receive(now); ++frames) {
      if (!asked_) ask(now);
    }
    if (!channel_ || now < due_) return;
    report("it does not answer questions about its records");
    lose(now);
  }

  void report(const Trouble& trouble) {
    if (!trouble.empty()) watcher_.peer_trouble(holder_, dial_.hello.expected, trouble);
  }

  // Data has arrived that poll() does not report.
  bool has_more() const { return channel_ && channel_->stream().has_more(); }

  void ask(TimePoint now) {
    frame_.clear();
    request_ = channel_->next_request();
    append_follow(frame_, request_, table_.ask(holder_, now), static_cast<uint32_t>(wait_.count()),
                  signs_.own(now));
    due_ = now + wait_ + kPatience;
    // A few bytes always fit into an empty socket buffer.
    if (channel_->stream().send(frame_) != static_cast<ssize_t>(frame_.size())) {
      lose(now);
      return;
    }
    asked_ = true;
    await_frame();
  }

  void await_frame() {
    frame_.resize(sizeof(FrameHeader));
    have_ = 0;
  }

  // True: a frame came, and another may follow.
  bool receive(TimePoint now) {
    while (have_ < frame_.size()) {
      const ssize_t n = channel_->stream().receive(frame_.data() + have_, frame_.size() - have_);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return false;
      if (n <= 0) return lose(now);
      have_ += static_cast<size_t>(n);
      if (have_ == sizeof(FrameHeader) && !expect_body()) return lose(now);
    }
    due_ = now + wait_ + kPatience;
    return take(now);
  }

  bool expect_body() {
    FrameHeader header;
    const char* wrong = parse_header(frame_, {FrameKind::followed}, kFollowedBodyBytesMax, header);
    if (wrong != nullptr) return false;
    frame_.resize(sizeof header + header.body_bytes);
    return header.body_bytes != 0;
  }

  bool take(TimePoint now) {
    Followed part;
    const auto body = std::span<const std::byte>(frame_).subspan(sizeof(FrameHeader));
    if (parse_followed(body, request_, part, rows_) != nullptr) return lose(now);
    const RecordTable::Taken taken = table_.take(holder_, part);
    if (taken == RecordTable::Taken::no_room) return lose(now, kRoomAgain);
    if (taken == RecordTable::Taken::does_not_fit) return lose(now);
    if (part.more) {
      await_frame();
      return true;
    }
    asked_ = false;
    signs_.hear(dial_.hello.expected, part.sign, now, true);
    if (channel_->stream().is_worn()) {
      channel_.reset();
      greeted_ = false;
      due_ = now;
      return false;
    }
    return true;
  }

  // False, for the callers to return.
  bool lose(TimePoint now, Clock::duration pause = kConnectAgain) {
    channel_.reset();
    asked_ = greeted_ = false;
    due_ = now + pause;
    table_.is_lost(holder_);
    return false;
  }

  const HolderIndex holder_;
  const Dial dial_;
  RecordTable& table_;
  LifeSigns& signs_;
  PeerWatcher& watcher_;
  const std::chrono::milliseconds wait_;
  std::unique_ptr<Channel> channel_;
  bool greeted_ = false;  // the channel works
  TimePoint due_{};       // proceed() must run then, even without a socket event

  bool asked_ = false;
  uint64_t request_ = 0;
  std::vector<std::byte> frame_;
  size_t have_ = 0;
  std::vector<RecordRow> rows_;
};

Follower::Follower(RecordTable& table, LifeSigns& signs, PeerWatcher& watcher,
                   const TcpEngineConfig& config, std::chrono::milliseconds wait)
    : table_(table), signs_(signs), watcher_(watcher), dial_(config), wait_(wait) {
  thread_ = named_thread("follow", [this] {
    run_as_batch();
    run();
  });
}

Follower::~Follower() { stop(); }

void Follower::stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  ring(wake_.get());
  if (thread_.joinable()) thread_.join();
  MutexLock lock(mutex_);
  lanes_.clear();
}

void Follower::follow(HolderIndex holder, const PeerEndpoint& endpoint) {
  Dial dial = dial_.to(endpoint);
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    std::unique_ptr<Lane>& lane = lanes_[holder];
    if (lane && same(lane->dial(), dial)) return;
    lane = std::make_unique<Lane>(holder, std::move(dial), *this);
  }
  ring(wake_.get());
}

void Follower::follow_at_most(unsigned holders) {
  {
    MutexLock lock(mutex_);
    holders_max_ = holders;
  }
  ring(wake_.get());
}

void Follower::leave(HolderIndex holder) {
  MutexLock lock(mutex_);
  lanes_.erase(holder);
}

void Follower::run() {
  std::vector<pollfd> waits;
  std::vector<HolderIndex> polled;  // polled[i] is the holder of waits[i + 1]
  while (true) {
    TimePoint until = TimePoint::max();
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      const TimePoint now = Clock::now();
      // Lanes that are not due yet run only after a socket event.
      for (size_t i = 0; i < polled.size(); ++i) {
        const auto lane = lanes_.find(polled[i]);
        if (waits[i + 1].revents != 0 && lane != lanes_.end()) lane->second->proceed(now);
      }
      waits.assign({pollfd{wake_.get(), POLLIN, 0}});
      polled.clear();
      unsigned followed = 0;
      for (auto& [holder, lane] : lanes_) {
        if (++followed > holders_max_) {
          lane->rest(now);
          continue;
        }
        if (now >= lane->due()) lane->proceed(now);
        until = std::min(until, lane->due());
        if (lane->fd() < 0) continue;
        waits.push_back({lane->fd(), lane->poll_events(), 0});
        polled.push_back(holder);
      }
    }
    const auto left = std::clamp<Clock::duration>(until - Clock::now(), Clock::duration::zero(),
                                                  std::chrono::seconds(60));
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
    const timespec timeout{ns / 1'000'000'000, ns % 1'000'000'000};
    (void)::ppoll(waits.data(), waits.size(), &timeout, nullptr);
    if (waits[0].revents != 0) hush(wake_.get());
  }
}

}  // namespace peercached::tcp
