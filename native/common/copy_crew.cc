#include "common/copy_crew.h"

#include <algorithm>
#include <atomic>

#include "common/thread_name.h"

namespace peercached {

namespace {
constexpr uint64_t kAloneBytes = 2 << 20;
}

struct CopyCrew::Job {
  Job(const std::function<void(size_t)>& body, size_t tasks) : task(body), count(tasks) {}

  const std::function<void(size_t)>& task;
  const size_t count;
  std::atomic<size_t> next{0};
  unsigned helpers = 0;  // threads inside work(); under the crew's mutex
  std::condition_variable left;

  void work() {
    for (size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) task(i);
  }
};

CopyCrew::CopyCrew(unsigned helpers) {
  for (unsigned i = 0; i < helpers; ++i) threads_.emplace_back([this] { help(); });
}

CopyCrew::~CopyCrew() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void CopyCrew::run(size_t count, uint64_t bytes, const std::function<void(size_t)>& task) {
  if (threads_.empty() || count < 2 || bytes < kAloneBytes) {
    for (size_t i = 0; i < count; ++i) task(i);
    return;
  }
  Job job(task, count);
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back(&job);
  }
  wake_.notify_all();
  job.work();
  std::unique_lock lock(mutex_);
  jobs_.erase(std::find(jobs_.begin(), jobs_.end(), &job));
  job.left.wait(lock, [&] { return job.helpers == 0; });
}

void CopyCrew::help() {
  name_thread("copy");
  std::unique_lock lock(mutex_);
  while (true) {
    Job* job = nullptr;
    wake_.wait(lock, [&] {
      for (Job* candidate : jobs_) {
        if (candidate->next.load() < candidate->count) job = candidate;
      }
      return stopping_ || job != nullptr;
    });
    if (stopping_) return;
    ++job->helpers;
    lock.unlock();
    job->work();
    lock.lock();
    if (--job->helpers == 0) job->left.notify_one();
  }
}

}  // namespace peercached
