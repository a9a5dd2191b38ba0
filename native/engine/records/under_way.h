// Tracks running work, so that a caller can wait for all work that has begun.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace peercached {

class UnderWay {
 public:
  class Work {
   public:
    explicit Work(UnderWay& all) : all_(all), side_(all.enter()) {}
    ~Work() { all_.leave(side_); }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    UnderWay& all_;
    const size_t side_;
  };

  // Waits until all work that had begun has ended. Ignores work that begins meanwhile.
  void wait() {
    std::lock_guard one(waiting_);
    std::unique_lock lock(mutex_);
    const size_t before = side_;
    side_ = 1 - side_;  // the other side is empty: the last wait() saw to it
    ended_.wait(lock, [&] { return count_[before] == 0; });
  }

 private:
  size_t enter() {
    std::lock_guard lock(mutex_);
    ++count_[side_];
    return side_;
  }
  void leave(size_t side) {
    std::lock_guard lock(mutex_);
    if (--count_[side] == 0) ended_.notify_one();
  }

  std::mutex waiting_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::array<size_t, 2> count_{};
  size_t side_ = 0;
};

}  // namespace peercached
