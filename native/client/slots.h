// Bounds how many threads do something at the same time. A Slot gives its place back when it is
// destroyed, also if its call was interrupted.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "client/waits.h"

namespace peercached::client {

struct Slots {
  explicit Slots(unsigned count_) : count(count_) {}
  unsigned count;
  std::vector<std::thread::id> taken{};
};

class Slot {
 public:
  explicit Slot(std::shared_ptr<Slots> slots) : slots_(std::move(slots)) {
    slots_->taken.push_back(thread_);
  }
  ~Slot() { slots_->taken.erase(std::find(slots_->taken.begin(), slots_->taken.end(), thread_)); }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  // Null: none was free in time. A thread that has a slot and asks again (in a signal handler) gets
  // another one at once, because it would wait for itself.
  // `over`: whether nobody wants it any more.
  static std::unique_ptr<Slot> take(
      const std::shared_ptr<Slots>& slots, TimePoint end, Waits& waits,
      const std::function<bool()>& over = [] { return false; }) {
    std::chrono::microseconds pause{200};
    const auto self = std::this_thread::get_id();
    const auto& taken = slots->taken;
    while (taken.size() >= slots->count &&
           std::find(taken.begin(), taken.end(), self) == taken.end()) {
      const TimePoint now = Clock::now();
      if (now >= end || over()) return nullptr;
      waits.ready(-1, 0, std::min(end, now + pause));
      pause = std::min(2 * pause, kPauseMax);
    }
    return std::make_unique<Slot>(slots);
  }

 private:
  static constexpr std::chrono::microseconds kPauseMax{5000};

  const std::shared_ptr<Slots> slots_;
  const std::thread::id thread_ = std::this_thread::get_id();
};

}  // namespace peercached::client
