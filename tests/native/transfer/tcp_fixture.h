// A holder (pool and server) and a reader (engine) over 127.0.0.1.
#pragma once

#include <atomic>
#include <memory>

#include "common/fault_guard.h"
#include "says.h"
#include "transfer/fixture.h"
#include "transfer/tcp/follow_server.h"
#include "transfer/tcp/tcp_engine.h"
#include "transfer/tcp/tcp_server.h"

namespace peercached::testing {

inline const std::string kToken(32, 't');

// Answers followers as a test says. Set `next` before the first question.
class ScriptedSource final : public tcp::FollowSource {
 public:
  using Next = Answer::Next;
  std::function<Next(Incarnation, const FeedQuestion&, bool has_time, tcp::Followed&)> next;
  EventFd news;

  std::unique_ptr<Answer> ask(Incarnation follower, const tcp::LifeSign&,
                              const FeedQuestion& question) override {
    return std::make_unique<Scripted>(next, follower, question);
  }
  int news_fd() const override { return news.get(); }
  void hear_news() override { hush(news.get()); }

 private:
  struct Scripted final : Answer {
    Scripted(decltype(ScriptedSource::next)& next_in, Incarnation who_in, const FeedQuestion& asked)
        : next_of(next_in), who(who_in), question(asked) {}
    Next next(bool has_time, tcp::Followed& part) override {
      return next_of(who, question, has_time, part);
    }
    decltype(ScriptedSource::next)& next_of;
    const Incarnation who;
    const FeedQuestion question;
  };
};

class Holder : public PagePool {
 public:
  explicit Holder(uint64_t pool_bytes, const TcpServerConfig& config = {},
                  Incarnation incarnation_ = kHolderIncarnation,
                  std::shared_ptr<tcp::FollowSource> follow = {})
      : PagePool(pool_bytes, incarnation_), config_(config), follow_(std::move(follow)) {
    config_.host = "127.0.0.1";
    config_.incarnation = incarnation;
    start();
  }
  // Only its server ends and starts again, on the same port.
  void restart() {
    config_.port = server->port();
    server.reset();
    start();
  }

  PeerEndpoint endpoint() const {
    return {"127.0.0.1", server->port(), kToken, incarnation, {}, config_.sealed};
  }

  std::atomic<uint32_t> last_hold_ms{0};
  std::atomic<bool> serves{true};
  // Set before the first request.
  TcpServer::Lookup lookup;
  TcpServer::Push push;

 private:
  void start() {
    server = std::make_unique<TcpServer>(
        config_, pool,
        [](const std::string& node, Incarnation reader) {
          return node == "reader" && reader == kReaderIncarnation ? kToken : std::string();
        },
        TcpServer::Answers{
            [this] { return serves.load(); },
            [this](std::span<const Digest> digests, uint32_t hold_ms, std::span<uint8_t> held) {
              last_hold_ms = hold_ms;
              pool.contains(digests, false, held);
            },
            [this](std::span<const Digest> digests, uint64_t view_number, Located& located) {
              if (lookup) lookup(digests, view_number, located);
            },
            [this](Incarnation peer, const FeedPart& part) {
              return push ? push(peer, part) : uint64_t{0};
            },
            follow_});
  }

  TcpServerConfig config_;
  const std::shared_ptr<tcp::FollowSource> follow_;

 public:
  std::unique_ptr<TcpServer> server;  // ends before what it uses
};

inline TcpEngineConfig as_reader(TcpEngineConfig config = {}) {
  config.node_id = "reader";
  config.incarnation = kReaderIncarnation;
  return config;
}
inline std::unique_ptr<TransferEngine> make_reader(PeerWatcher& watcher,
                                                   const TcpEngineConfig& config = {}) {
  return make_tcp_engine(as_reader(config), watcher);
}

// The base of tests of readers.
class TcpTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { install_fault_guard(); }

  // A reader that knows the holder as kPeer.
  std::unique_ptr<TransferEngine> reader_of(const PeerEndpoint& endpoint,
                                            const TcpEngineConfig& config = {}) {
    auto engine = make_reader(watcher, config);
    engine->add_peer(kPeer, endpoint);
    return engine;
  }
  // Checks that there was one trouble, and what it says.
  void expect_trouble(const std::string& part) const {
    ASSERT_EQ(watcher.troubles().size(), 1u);
    EXPECT_TRUE(says(watcher.troubles()[0], part)) << watcher.troubles()[0];
  }
  // Checks an honest reader that connected before the trouble and must not notice it.
  static void expect_served(Holder& holder, TransferEngine& engine, uint64_t number) {
    expect_read(engine, {holder.set(number, 10'000)}, number);
  }

  RecordingWatcher watcher;
};

}  // namespace peercached::testing
