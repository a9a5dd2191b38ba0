#include "engine/control.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace peercached {

ControlQueue::ControlQueue(size_t events_max, size_t bytes_max)
    : events_max_(events_max),
      bytes_max_(bytes_max),
      event_fd_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  if (event_fd_ < 0) throw std::system_error(errno, std::generic_category(), "timerfd");
}

ControlQueue::~ControlQueue() { ::close(event_fd_); }

void ControlQueue::wake(Alarm alarm) {
  if (alarm <= alarm_) return;
  alarm_ = alarm;
  constexpr std::chrono::nanoseconds kLater = kToldWithin;
  itimerspec in{};
  in.it_value.tv_nsec = alarm == Alarm::now ? 1 : kLater.count();
  timerfd_settime(event_fd_, 0, &in, nullptr);
}

bool ControlQueue::refuse(EventKind kind, size_t payload_bytes) {
  // A single event may exceed the bound in bytes, or it could never go through.
  if (events_.size() < events_max_ && (events_.empty() || bytes_ + payload_bytes <= bytes_max_)) {
    return false;
  }
  ++dropped_;
  lost_updates_ = lost_updates_ || kind == EventKind::publish;
  return true;
}

void ControlQueue::push(EventKind kind, uint64_t ticket, TimePoint deadline,
                        std::span<const std::byte> payload) {
  bytes_ += payload.size();
  ++posted_;
  events_.push_back({kind, ticket, deadline, {payload.begin(), payload.end()}});
}

bool ControlQueue::post(EventKind kind, std::span<const std::byte> payload) {
  std::lock_guard lock(mutex_);
  if (closed_ || refuse(kind, payload.size())) return false;
  push(kind, 0, TimePoint::max(), payload);
  wake(Alarm::now);
  return true;
}

void ControlQueue::tell(std::span<const std::byte> rows) {
  std::lock_guard lock(mutex_);
  if (closed_ || refuse(EventKind::publish, rows.size())) return;
  const bool alone = events_.empty() || events_.back().kind != EventKind::publish ||
                     events_.back().ticket != 0 ||
                     events_.back().payload.size() + rows.size() > kToldTogether;
  if (alone) {
    push(EventKind::publish, 0, TimePoint::max(), rows);
  } else {
    bytes_ += rows.size();
    std::vector<std::byte>& told = events_.back().payload;
    told.insert(told.end(), rows.begin(), rows.end());
  }
  wake(bytes_ < kToldTogether ? Alarm::later : Alarm::now);
}

ControlQueue::Question::Question(ControlQueue& queue, EventKind kind,
                                 std::span<const std::byte> payload, Deadline deadline)
    : queue_(queue), deadline_(deadline) {
  std::lock_guard lock(queue_.mutex_);
  if (queue_.closed_ || queue_.refuse(kind, payload.size())) return;
  ticket_ = queue_.next_ticket_++;
  queue_.questions_.emplace(ticket_, this);
  queue_.push(kind, ticket_, deadline.at, payload);
  queue_.wake(Alarm::now);
}

ControlQueue::Question::~Question() {
  if (ticket_ == 0) return;
  std::lock_guard lock(queue_.mutex_);
  queue_.questions_.erase(ticket_);
}

std::optional<std::vector<std::byte>> ControlQueue::Question::wait() {
  if (ticket_ == 0) return std::nullopt;
  std::unique_lock lock(queue_.mutex_);
  ready_.wait_until(lock, deadline_.at, [&] { return done_; });
  return std::move(answer_);
}

std::vector<Event> ControlQueue::take(size_t limit) {
  std::lock_guard lock(mutex_);
  uint64_t count;
  [[maybe_unused]] auto got = ::read(event_fd_, &count, sizeof count);
  alarm_ = Alarm::none;
  std::vector<Event> taken;
  if (lost_updates_) {
    lost_updates_ = false;
    taken.push_back({EventKind::lost_updates, 0, TimePoint::max(), {}});
  }
  while (!events_.empty() && taken.size() < limit) {
    Event event = std::move(events_.front());
    events_.pop_front();
    bytes_ -= event.payload.size();
    // Records must reach the owners even if nobody waits. Other questions end with their caller.
    if (event.kind != EventKind::publish && event.ticket != 0 &&
        !questions_.contains(event.ticket)) {
      continue;
    }
    taken.push_back(std::move(event));
  }
  if (!events_.empty()) wake(Alarm::now);
  return taken;
}

void ControlQueue::answer(uint64_t ticket, std::vector<std::byte> payload) {
  std::lock_guard lock(mutex_);
  auto found = questions_.find(ticket);
  if (found == questions_.end() || found->second->done_) return;
  found->second->answer_ = std::move(payload);
  found->second->done_ = true;
  found->second->ready_.notify_one();
}

void ControlQueue::give_up(uint64_t ticket) {
  std::lock_guard lock(mutex_);
  auto found = questions_.find(ticket);
  if (found == questions_.end()) return;
  found->second->done_ = true;
  found->second->ready_.notify_one();
}

void ControlQueue::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  for (auto& [ticket, question] : questions_) {
    question->done_ = true;
    question->ready_.notify_one();
  }
}

bool ControlQueue::behind() const {
  std::lock_guard lock(mutex_);
  return events_.size() > kBehindEvents || bytes_ > kBehindBytes;
}

uint64_t ControlQueue::posted() const {
  std::lock_guard lock(mutex_);
  return posted_;
}

uint64_t ControlQueue::dropped() const {
  std::lock_guard lock(mutex_);
  return dropped_;
}

}  // namespace peercached
