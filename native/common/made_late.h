// A part that is made while other threads already look for it. Once made, it stays until its owner
// ends. So a thread that has found it may use it: what stops such a part must not destroy it.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

namespace peercached {

template <typename T>
class MadeLate {
 public:
  // One thread at a time.
  template <typename... Arguments>
  T& make(Arguments&&... arguments) {
    owned_ = std::make_unique<T>(std::forward<Arguments>(arguments)...);
    made_.store(owned_.get(), std::memory_order_release);
    return *owned_;
  }
  T* get() const { return made_.load(std::memory_order_acquire); }  // nullptr: not made yet

 private:
  std::unique_ptr<T> owned_;
  std::atomic<T*> made_{nullptr};
};

}  // namespace peercached
