#include "engine/control/control_queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace peercached {

ControlQueue::ControlQueue(size_t events_max, size_t bytes_max)
    : events_max_(events_max),
      bytes_max_(bytes_max),
      event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (event_fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

ControlQueue::~ControlQueue() { ::close(event_fd_); }

void ControlQueue::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const auto sent = ::write(event_fd_, &one, sizeof one);
}

bool ControlQueue::refuse(size_t payload_bytes) {
  // A single event may exceed the bound in bytes, or it could never go through.
  if (events_.size() < events_max_ && (events_.empty() || bytes_ + payload_bytes <= bytes_max_)) {
    return false;
  }
  ++dropped_;
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
  if (closed_ || refuse(payload.size())) return false;
  push(kind, 0, TimePoint::max(), payload);
  wake();
  return true;
}

ControlQueue::Question::Question(ControlQueue& queue, EventKind kind,
                                 std::span<const std::byte> payload, Deadline deadline)
    : queue_(queue), deadline_(deadline) {
  std::lock_guard lock(queue_.mutex_);
  if (queue_.closed_ || queue_.refuse(payload.size())) return;
  const uint64_t ticket = queue_.next_ticket_++;
  queue_.push(kind, ticket, deadline.at, payload);  // it may throw
  queue_.questions_.emplace(ticket, this);
  ticket_ = ticket;
  queue_.wake();
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
  std::vector<Event> taken;
  while (!events_.empty() && taken.size() < limit) {
    Event event = std::move(events_.front());
    events_.pop_front();
    bytes_ -= event.payload.size();
    if (event.ticket != 0 && !questions_.contains(event.ticket)) continue;  // its caller has ended
    taken.push_back(std::move(event));
  }
  if (!events_.empty()) wake();
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

uint64_t ControlQueue::posted() const {
  std::lock_guard lock(mutex_);
  return posted_;
}

uint64_t ControlQueue::dropped() const {
  std::lock_guard lock(mutex_);
  return dropped_;
}

}  // namespace peercached
