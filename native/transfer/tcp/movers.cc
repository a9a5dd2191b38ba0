#include "transfer/tcp/movers.h"

#include <utility>

#include "common/thread_name.h"

namespace peercached::tcp {

Movers::Movers(unsigned threads) : idle_(threads) {
  for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

Movers::~Movers() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool Movers::try_run(std::function<void()>&& work) {
  {
    MutexLock lock(mutex_);
    if (idle_ == 0) return false;
    --idle_;
    given_.push_back(std::move(work));
  }
  wake_.notify_one();
  return true;
}

void Movers::run() {
  name_thread("move");
  MutexLock lock(mutex_);
  while (true) {
    while (!stopping_ && given_.empty()) wake_.wait(mutex_);
    if (given_.empty()) return;
    auto work = std::move(given_.back());
    given_.pop_back();
    {
      MutexUnlock unlocked(mutex_);
      work();
      work = nullptr;
    }
    ++idle_;
  }
}

}  // namespace peercached::tcp
