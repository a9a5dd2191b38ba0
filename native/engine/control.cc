#include "engine/control.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace peercached {

ControlQueue::ControlQueue(size_t events_max)
    : events_max_(events_max), event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (event_fd_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

ControlQueue::~ControlQueue() { ::close(event_fd_); }

void ControlQueue::wake() {
  // EAGAIN means the counter is full, so the reader is woken anyway.
  const uint64_t one = 1;
  [[maybe_unused]] auto written = ::write(event_fd_, &one, sizeof one);
}

void ControlQueue::post(EventKind kind, std::span<const std::byte> payload) {
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    if (events_.size() >= events_max_) {
      ++dropped_;
      lost_updates_ = lost_updates_ || kind == EventKind::publish;
      return;
    }
    events_.push_back({kind, 0, TimePoint::max(), {payload.begin(), payload.end()}});
    if (events_.size() > 1) return;  // the one before has woken the reader
  }
  wake();
}

std::optional<std::vector<std::byte>> ControlQueue::ask(EventKind kind,
                                                        std::span<const std::byte> payload,
                                                        Deadline deadline) {
  Waiter waiter;
  std::unique_lock lock(mutex_);
  if (closed_) return std::nullopt;
  if (events_.size() >= events_max_) {
    ++dropped_;
    lost_updates_ = lost_updates_ || kind == EventKind::publish;
    return std::nullopt;
  }
  const uint64_t ticket = next_ticket_++;
  waiters_.emplace(ticket, &waiter);
  events_.push_back({kind, ticket, deadline.at, {payload.begin(), payload.end()}});
  const bool first = events_.size() == 1;
  lock.unlock();
  if (first) wake();
  lock.lock();
  waiter.ready.wait_until(lock, deadline.at, [&] { return waiter.done; });
  waiters_.erase(ticket);
  return std::move(waiter.answer);
}

std::vector<Event> ControlQueue::take(size_t limit) {
  std::lock_guard lock(mutex_);
  uint64_t count;
  [[maybe_unused]] auto got = ::read(event_fd_, &count, sizeof count);
  std::vector<Event> taken;
  if (lost_updates_) {
    lost_updates_ = false;
    taken.push_back({EventKind::lost_updates, 0, TimePoint::max(), {}});
  }
  while (!events_.empty() && taken.size() < limit) {
    taken.push_back(std::move(events_.front()));
    events_.pop_front();
  }
  if (!events_.empty()) wake();
  return taken;
}

void ControlQueue::answer(uint64_t ticket, std::vector<std::byte> payload) {
  std::lock_guard lock(mutex_);
  auto found = waiters_.find(ticket);
  if (found == waiters_.end() || found->second->done) return;
  found->second->answer = std::move(payload);
  found->second->done = true;
  found->second->ready.notify_one();
}

void ControlQueue::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  for (auto& [ticket, waiter] : waiters_) {
    waiter->done = true;
    waiter->ready.notify_one();
  }
}

uint64_t ControlQueue::dropped() const {
  std::lock_guard lock(mutex_);
  return dropped_;
}

}  // namespace peercached
