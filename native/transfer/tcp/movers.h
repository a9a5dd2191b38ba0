// Helper threads that receive beside the calling thread, so that a large read uses several
// processors. There is no queue: work is taken by an idle mover at once or not at all, since
// pages that wait for a mover would wait for somebody else's deadline.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace peercached::tcp {

class Movers {
 public:
  explicit Movers(unsigned threads);
  Movers(const Movers&) = delete;
  Movers& operator=(const Movers&) = delete;
  ~Movers();

  // Runs `work` on an idle mover; false, and `work` untouched, if there is none.
  bool try_run(std::function<void()>&& work);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  size_t idle_ = 0;
  std::vector<std::function<void()>> given_;  // each counted off idle_ already
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace peercached::tcp
