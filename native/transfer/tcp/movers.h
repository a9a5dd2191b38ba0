// Helper threads that receive beside the calling thread, so that a large read uses several
// processors. There is no queue: an idle mover takes the work at once, or nobody does. Queued pages
// would wait for the deadline of another read.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "common/mutex.h"

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

  Mutex mutex_;
  CondVar wake_;
  size_t idle_ GUARDED_BY(mutex_);
  // idle_ no longer counts their movers.
  std::vector<std::function<void()>> given_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace peercached::tcp
