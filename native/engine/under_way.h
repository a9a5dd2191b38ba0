// Work of a kind that is under way, so that somebody can wait for what had begun before.
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

  // Until all that had begun has ended; what begins meanwhile is not waited for.
  void wait() {
    std::lock_guard one(waiting_);
    std::unique_lock lock(mutex_);
    const size_t before = side_;
    side_ = 1 - side_;  // nobody is left on that one: the last who waited saw to it
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
