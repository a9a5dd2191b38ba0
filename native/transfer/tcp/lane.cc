#include "transfer/tcp/lane.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "common/event_fd.h"

namespace peercached::tcp {
namespace {

// Bytes received from one channel before the others get their turn.
constexpr size_t kTurnBytes = 4 * kGatePieceBytes;
constexpr size_t kPlacesMax = 128;  // two for each page

// How often to look for a free channel if no eventfd is left to wake us.
constexpr auto kBlindWait = std::chrono::milliseconds(5);

}  // namespace

Lane::Lane(ReadCall& call, PeerRead& peer, Channel* channel)
    : call_(call), peer_(peer), channel_(channel) {
  peer_.lane_starts();
}

Lane::~Lane() {
  if (!finished_) abandon();
}

void Lane::begin(int wake_fd) {
  wake_fd_ = wake_fd;
  if (channel_ == nullptr) {
    if (wake_fd >= 0) peer_.channels().wait_with(wake_fd);
  } else if (channel_->state() == Channel::State::ready) {
    work();
  } else if (channel_->state() == Channel::State::broken) {
    broken(channel_->trouble());
  }
}

void Lane::proceed() {
  if (channel_->state() != Channel::State::ready) {
    channel_->proceed();
    if (channel_->state() == Channel::State::broken) return broken(channel_->trouble());
    if (channel_->state() == Channel::State::ready) work();
    return;
  }
  if (!flush()) return;
  receive();
}

void Lane::look_around(TimePoint now) {
  if (finished_) return;
  if (peer_.gives_nothing()) return abandon();
  if (channel_ == nullptr) {
    channel_ = peer_.channels().lease();
    if (channel_ == nullptr && !peer_.channels().closed()) return;
    peer_.channels().stop_waiting(wake_fd_);
    if (channel_ == nullptr) return end(false, "dropped");
    return begin(wake_fd_);
  }
  if (channel_->state() == Channel::State::ready) return;
  if (peer_.settled()) return end(true, {});
  channel_->check_time(now);
  if (channel_->state() == Channel::State::broken) broken(channel_->trouble());
}

void Lane::abandon() {
  if (channel_ == nullptr) peer_.channels().stop_waiting(wake_fd_);
  const PageStatus stopped = call_.stopped.load(std::memory_order_acquire);
  for (size_t i = 0; i < outstanding_count_; ++i) {
    peer_.fail(outstanding_[i].ops,
               stopped == PageStatus::pending ? PageStatus::deadline : stopped);
  }
  // A channel that is still connecting is given back: the next read can use it.
  const bool clean = outstanding_count_ == 0;
  outstanding_count_ = 0;
  end(clean, {});
}

// The channel is ready: sends as many requests as allowed, or ends when all work is done.
void Lane::work() {
  std::span<ReadOp> chunk;
  while (outstanding_count_ < kRequestsMax && peer_.claim(chunk)) {
    wanted_.clear();
    for (const ReadOp& op : chunk) {
      wanted_.push_back({op.offset, op.digest, op.generation, op.length, 0});
    }
    const Request request{channel_->next_request(), chunk};
    append_read(channel_->unsent(), request.id, wanted_);
    outstanding_[outstanding_count_++] = request;
    if (outstanding_count_ == 1) answer_.expect(request.id, request.ops);
  }
  if (flush() && outstanding_count_ == 0) end(true, {});
}

bool Lane::flush() {
  if (channel_->flush()) return true;
  broken("broken while sending a request: " + channel_->stream().error_text(errno));
  return false;
}

void Lane::receive() {
  bool drained = false;
  for (size_t turn = 0; turn < kTurnBytes && !drained; turn += kGatePieceBytes) {
    if (!receive_piece(drained)) return;
  }
}

// Makes one receive call. False: the lane has ended, or has another channel now.
bool Lane::receive_piece(bool& drained) {
  std::array<iovec, kPlacesMax> places;
  const auto asked_places = std::span(places).first(answer_.places(places, kGatePieceBytes));
  size_t asked = 0;
  for (const iovec& place : asked_places) asked += place.iov_len;

  if (!call_.gate.enter()) {
    call_.stop(PageStatus::deadline);
    abandon();
    return false;
  }
  const ssize_t n = channel_->stream().receive(asked_places);
  const int error = n < 0 ? errno : 0;
  call_.gate.leave();

  if (n < 0) {
    if (error == EINTR) return true;
    if (error == EAGAIN) {
      drained = true;
      return true;
    }
    if (error == EFAULT) {  // the worker has truncated its memory
      call_.stop(PageStatus::region_lost);
      abandon();
      return false;
    }
    broken("broken while sending pages: " + channel_->stream().error_text(error));
    return false;
  }
  if (n == 0) {
    broken("closed the connection");
    return false;
  }
  heard_ = true;
  drained = static_cast<size_t>(n) < asked;
  peer_.progressed(static_cast<size_t>(n));
  landed_.clear();
  const char* wrong = answer_.took(static_cast<size_t>(n), landed_);
  land();
  const auto [op, payload_bytes] = answer_.arriving();
  if (op != nullptr && call_.sink.sums()) sum_.arrived(*op, payload_bytes);
  if (wrong != nullptr) {
    broken(std::string("sent a bad answer: ") + wrong);
    return false;
  }
  if (!answer_.done()) return true;
  peer_.settle(outstanding_[0].ops);
  outstanding_[0] = outstanding_[1];
  --outstanding_count_;
  if (outstanding_count_ != 0) answer_.expect(outstanding_[0].id, outstanding_[0].ops);
  work();
  return !finished_ && outstanding_count_ != 0;
}

void Lane::land() {
  for (ReadOp* op : landed_) {
    op->again = op->header;  // the holder had it pinned, so it cannot have changed
    sum_.landed(*op);
    call_.sink.landed(peer_.batch(), *op);
    if (op->status == PageStatus::pending) op->status = PageStatus::error;
  }
}

void Lane::broken(Trouble trouble) {
  if (channel_->pooled() && !heard_) {
    // The idle connection has died, most likely with its peer, which may be back. No byte has come,
    // so nothing is lost. Try one fresh connection.
    for (size_t i = 0; i < outstanding_count_; ++i) peer_.put_back(outstanding_[i].ops);
    outstanding_count_ = 0;
    answer_ = {};
    sum_ = {};
    channel_ = peer_.channels().replace(channel_);
    if (channel_ == nullptr) return end(false, "dropped");
    return begin(wake_fd_);
  }
  const bool owed = outstanding_count_ != 0;
  for (size_t i = 0; i < outstanding_count_; ++i) {
    peer_.fail(outstanding_[i].ops, PageStatus::error);
  }
  outstanding_count_ = 0;
  if (owed) peer_.report(trouble);
  end(false, trouble);
}

void Lane::end(bool reusable, const Trouble& trouble) {
  finished_ = true;
  if (channel_ != nullptr) peer_.channels().give_back(channel_, reusable);
  channel_ = nullptr;
  peer_.lane_ends(trouble);
}

void drive(ReadCall& call, std::span<Lane* const> lanes, int wake_fd) {
  for (Lane* lane : lanes) lane->begin(wake_fd);
  std::vector<pollfd> waits;
  std::vector<Lane*> active;
  while (true) {
    waits.assign(1, {wake_fd, POLLIN, 0});
    active.clear();
    const TimePoint now = Clock::now();
    const TimePoint end = call.ends_at();
    const bool over = call.over() || now >= end;
    if (over && now < call.deadline.at && !call.over()) call.cut = true;
    TimePoint until = end;
    for (Lane* lane : lanes) {
      if (lane->finished()) continue;
      if (over) {
        lane->abandon();
        continue;
      }
      active.push_back(lane);
      if (lane->has_more()) until = now;
      waits.push_back({lane->fd(), lane->waiting() ? short{0} : lane->poll_events(), 0});
      until = std::min(until, lane->until());
      if (lane->waiting() && wake_fd < 0) until = std::min(until, now + kBlindWait);
    }
    if (active.empty()) return;

    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::max(until - now, Clock::duration::zero()));
    const timespec timeout{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
    (void)::ppoll(waits.data(), waits.size(), &timeout, nullptr);

    if (waits[0].revents != 0) hush(wake_fd);
    const TimePoint awake = Clock::now();
    for (size_t i = 0; i < active.size(); ++i) {
      if (waits[i + 1].revents != 0 || active[i]->has_more()) active[i]->proceed();
      if (!active[i]->finished()) active[i]->look_around(awake);
    }
  }
}

}  // namespace peercached::tcp
