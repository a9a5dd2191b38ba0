#include "transfer/tcp/follow_server.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "common/clock.h"
#include "common/thread_name.h"

namespace peercached::tcp {
namespace {

constexpr uint32_t kNewsWaitMsMax = 10'000;

bool watch(int epoll_fd, int fd, uint32_t events, void* of) {
  epoll_event event{.events = events, .data = {.ptr = of}};
  return ::epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

// One follower.
class FollowServer::Lane {
 public:
  Lane(ServerStream& stream, std::function<void()> on_end, const FollowServer& server)
      : stream_(stream),
        on_end_(std::move(on_end)),
        source_(server.source_),
        config_(server.config_),
        epoll_fd_(server.epoll_.fd()),
        incarnation_(stream.incarnation()) {
    // Only now: the thread that served it before waits in the kernel.
    (void)::fcntl(stream.fd(), F_SETFL, ::fcntl(stream.fd(), F_GETFL) | O_NONBLOCK);
    // Each event comes once. So a turn goes on until the socket has no more, or the lane is due.
    gone_ = !watch(epoll_fd_, stream.fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, this);
  }

  void stir(uint32_t events) {
    stirred_ = true;
    gone_ |= (events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0;
  }
  void hear_news() { stirred_ |= state_ == State::waiting; }
  bool is_due(TimePoint now) const { return stirred_ || now >= due_; }
  TimePoint due() const { return stirred_ ? TimePoint{} : due_; }

  // Goes on as far as possible, but for one frame at most. False: the channel must end.
  bool proceed(TimePoint now) {
    stirred_ = false;
    if (gone_) return false;
    Step step = Step::next;
    while (step == Step::next) {
      switch (state_) {
        case State::reading:
          step = read(now);
          break;
        case State::asked:
          step = ask(now);
          break;
        case State::waiting:
          step = answer(now);
          break;
        case State::answering:
          step = continue_answer(now);
          break;
      }
    }
    return step == Step::rest;
  }

  void end() {
    (void)::epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, stream_.fd(), nullptr);
    stream_.close();
    on_end_();
  }

 private:
  enum class State { reading, asked, waiting, answering };
  enum class Step { next, rest, end };

  Step read(TimePoint now) {
    switch (stream_.receive({FrameKind::follow}, kRequestBodyBytesMax)) {
      case ServerStream::Got::all:
        state_ = State::asked;
        return Step::next;
      case ServerStream::Got::closed:
        return Step::end;
      case ServerStream::Got::wrong:
        return bad_frame();
      case ServerStream::Got::none:
        break;
    }
    if (stream_.in_frame() && !in_frame_) {
      in_frame_ = true;
      due_ = now + std::chrono::milliseconds(config_.stall_timeout_ms);
    }
    if (now < due_) return Step::rest;
    return in_frame_ ? bad_frame() : Step::end;
  }

  Step ask(TimePoint now) {
    FollowHead head;
    if (parse_follow(stream_.body(), head) != nullptr) return bad_frame();
    if (stream_.is_spent()) return Step::end;
    request_ = head.request;
    answer_ = source_.ask(incarnation_, head.sign, head.question);
    in_frame_ = false;
    state_ = State::waiting;
    due_ = now + std::chrono::milliseconds(std::min(head.wait_ms, kNewsWaitMsMax));
    return answer_ ? Step::next : Step::end;
  }

  Step answer(TimePoint now) {
    Followed part;
    const auto next = answer_->next(now < due_, part);
    if (next == FollowSource::Answer::Next::wait) return Step::rest;
    if (next == FollowSource::Answer::Next::none) return Step::end;
    frame_.clear();
    sent_ = 0;
    append_followed(frame_, request_, part);
    more_ = part.more;
    state_ = State::answering;
    due_ = now + std::chrono::milliseconds(config_.stall_timeout_ms);
    return Step::next;
  }

  Step continue_answer(TimePoint now) {
    while (sent_ < frame_.size()) {
      const ssize_t n = stream_.bytes().send(std::span(frame_).subspan(sent_));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno != EAGAIN) return Step::end;
      if (n < 0) {
        if (now < due_) return Step::rest;
        stream_.stalled("records");
        return Step::end;
      }
      sent_ += static_cast<size_t>(n);
    }
    if (more_) {
      state_ = State::waiting;
    } else {
      answer_.reset();
      state_ = State::reading;
      due_ = now + std::chrono::milliseconds(config_.idle_timeout_ms);
    }
    stirred_ = true;  // after the others
    return Step::rest;
  }

  Step bad_frame() {
    stream_.bad_frame();
    return Step::end;
  }

  ServerStream& stream_;
  const std::function<void()> on_end_;
  FollowSource& source_;
  const TcpServerConfig& config_;
  const int epoll_fd_;
  const Incarnation incarnation_;

  State state_ = State::asked;
  bool stirred_ = true;  // it has something to do now
  bool gone_ = false;
  TimePoint due_{};  // of the state: it must have ended until then
  bool in_frame_ = false;
  uint64_t request_ = 0;
  std::unique_ptr<FollowSource::Answer> answer_;
  std::vector<std::byte> frame_;
  size_t sent_ = 0;
  bool more_ = false;  // frames of this answer
};

FollowServer::FollowServer(FollowSource& source, const TcpServerConfig& config)
    : source_(source), config_(config), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!watch(epoll_.fd(), wake_.get(), EPOLLIN, &wake_) ||
      !watch(epoll_.fd(), source.news_fd(), EPOLLIN, &source_)) {
    throw std::system_error(errno, std::generic_category(), "cannot watch followers");
  }
  thread_ = named_thread("followers", [this] {
    run_as_batch();
    run();
  });
}

FollowServer::~FollowServer() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  ring(wake_.get());
  thread_.join();
}

void FollowServer::take(ServerStream& stream, std::function<void()> on_end) {
  {
    MutexLock lock(mutex_);
    taken_.emplace_back(&stream, std::move(on_end));
  }
  ring(wake_.get());
}

bool FollowServer::add_taken(std::list<Lane>& lanes) {
  MutexLock lock(mutex_);
  for (auto& [stream, on_end] : taken_) lanes.emplace_back(*stream, std::move(on_end), *this);
  taken_.clear();
  return !stopping_;
}

void FollowServer::run() {
  std::list<Lane> lanes;  // events have pointers to them
  std::array<epoll_event, 64> events;
  TimePoint due = TimePoint::max();
  while (true) {
    const int count =
        ::epoll_wait(epoll_.fd(), events.data(), events.size(), Deadline{due}.remaining_ms());
    for (int i = 0; i < count; ++i) {
      void* const of = events[i].data.ptr;
      if (of == &wake_) {
        hush(wake_.get());
      } else if (of == &source_) {
        source_.hear_news();
        for (Lane& lane : lanes) lane.hear_news();
      } else {
        static_cast<Lane*>(of)->stir(events[i].events);
      }
    }
    if (!add_taken(lanes)) return;
    const TimePoint now = Clock::now();
    due = TimePoint::max();
    for (auto it = lanes.begin(); it != lanes.end();) {
      const auto lane = it++;
      if (lane->is_due(now) && !lane->proceed(now)) {
        lane->end();
        lanes.erase(lane);
      } else {
        due = std::min(due, lane->due());
      }
    }
  }
}

}  // namespace peercached::tcp
