// Answers all followers of this node's records, on one thread that never blocks.
//
//   reading ──question──▶ waiting ──news, or its time is over──▶ answering ──last frame──▶ reading
//                            ▲                                       │
//                            └─────────────another frame─────────────┘
//
// A turn of a follower makes and sends one frame at most, so a scan of many records or a slow
// follower delays no other one. A follower that does not take a frame in time is cut off.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/event_fd.h"
#include "common/mutex.h"
#include "transfer/tcp/frames.h"
#include "transfer/tcp/server_stream.h"

namespace peercached::tcp {

// Where the answers come from. Called on the server's thread only.
class FollowSource {
 public:
  // The answer to one question.
  class Answer {
   public:
    enum class Next { part, wait, none };

    virtual ~Answer() = default;
    // The next part. Its rows stay until the next call. `wait`: there is no news, and the
    // question has time left. `none`: there is no answer, and the channel must end.
    virtual Next next(bool has_time, Followed& part) = 0;
  };

  virtual ~FollowSource() = default;
  // Null: the question is outdated.
  virtual std::unique_ptr<Answer> ask(Incarnation follower, const LifeSign& sign,
                                      const FeedQuestion& question) = 0;
  // Readable when waiting answers may have news, until hear_news().
  virtual int news_fd() const = 0;
  virtual void hear_news() = 0;
};

class FollowServer {
 public:
  FollowServer(FollowSource& source, const TcpServerConfig& config);
  // Answers nobody from now on. The streams stay as they are.
  ~FollowServer();
  FollowServer(const FollowServer&) = delete;
  FollowServer& operator=(const FollowServer&) = delete;

  // Takes over a stream that has received a `follow`. Calls `on_end` when it has closed the stream,
  // and does not touch it afterwards.
  void take(ServerStream& stream, std::function<void()> on_end);

 private:
  class Lane;

  void run();
  bool add_taken(std::list<Lane>& lanes);  // false: stop

  FollowSource& source_;
  const TcpServerConfig& config_;
  const Socket epoll_;
  EventFd wake_;
  Mutex mutex_;
  std::vector<std::pair<ServerStream*, std::function<void()>>> taken_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace peercached::tcp
