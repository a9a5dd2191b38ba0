// Whether anybody finds pages here: between begin() and end(), except while paused. A node pauses
// when it may have missed removals. Thread safe.
#pragma once

#include <atomic>

namespace peercached {

class Serving {
 public:
  void begin() { open_.store(true, std::memory_order_release); }
  void end() { open_.store(false, std::memory_order_release); }
  void pause(bool paused) { paused_.store(paused, std::memory_order_release); }
  bool on() const {
    return open_.load(std::memory_order_acquire) && !paused_.load(std::memory_order_acquire);
  }

 private:
  std::atomic<bool> open_{false}, paused_{false};
};

}  // namespace peercached
