// A holder (pool and server) and a reader (engine) over 127.0.0.1.
#pragma once

#include <atomic>
#include <memory>

#include "common/fault_guard.h"
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
  explicit Holder(uint64_t pool_bytes, TcpServerConfig config = {},
                  Incarnation incarnation_ = kHolderIncarnation,
                  const std::shared_ptr<tcp::FollowSource>& follow = {})
      : PagePool(pool_bytes, incarnation_) {
    config.host = "127.0.0.1";
    config.incarnation = incarnation;
    sealed = config.sealed;
    server = std::make_unique<TcpServer>(
        config, pool,
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
            follow});
  }

  PeerEndpoint endpoint() const {
    return {"127.0.0.1", server->port(), kToken, incarnation, {}, sealed};
  }

  std::atomic<uint32_t> last_hold_ms{0};
  std::atomic<bool> serves{true};
  bool sealed = false;
  // Set before the first request.
  TcpServer::Lookup lookup;
  TcpServer::Push push;
  std::unique_ptr<TcpServer> server;
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

}  // namespace peercached::testing
