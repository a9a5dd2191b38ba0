// Helper threads that receive beside the calling thread, so that a large read uses several
// processors. There is no queue: an idle mover takes the work at once, or nobody does. Queued pages
// would wait for the deadline of another read.
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

  // Runs `work` on an idle mover. If none is idle, returns false and leaves `work` untouched.
  bool try_run(std::function<void()>&& work);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  size_t idle_ = 0;
  std::vector<std::function<void()>> given_;  // idle_ no longer counts their movers
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace peercached::tcp
