#include "common/copy_crew.h"

#include <algorithm>
#include <atomic>

#include "common/thread_name.h"

namespace peercached {

namespace {
constexpr uint64_t kAloneBytes = 2 << 20;
}

struct CopyCrew::Job {
  const CopyFor use;
  const std::function<void(size_t)>& task;
  const size_t count;
  std::atomic<size_t> next{0};
  unsigned helpers = 0;  // threads inside work(); under the crew's mutex
  std::condition_variable left{};
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

void CopyCrew::run(CopyFor use, size_t count, uint64_t bytes,
                   const std::function<void(size_t)>& task) {
  if (threads_.empty() || count < 2 || bytes < kAloneBytes) {
    for (size_t i = 0; i < count; ++i) task(i);
    return;
  }
  Job job{.use = use, .task = task, .count = count};
  {
    std::lock_guard lock(mutex_);
    if (use == CopyFor::get) ++gets_;
    jobs_.push_back(&job);
  }
  wake_.notify_all();
  work(job, false);
  std::unique_lock lock(mutex_);
  jobs_.erase(std::find(jobs_.begin(), jobs_.end(), &job));
  job.left.wait(lock, [&] { return job.helpers == 0; });
}

bool CopyCrew::comes_first(const Job& job) const {
  return job.use == CopyFor::get || gets_.load() == 0;
}

void CopyCrew::work(Job& job, bool helps) {
  while (!helps || comes_first(job)) {
    const size_t i = job.next.fetch_add(1);
    if (i >= job.count) return;
    if (i + 1 == job.count && job.use == CopyFor::get) {
      {
        std::lock_guard lock(mutex_);
        --gets_;
      }
      wake_.notify_all();  // for the sets
    }
    job.task(i);
  }
}

void CopyCrew::help() {
  name_thread("copy");
  std::unique_lock lock(mutex_);
  while (true) {
    Job* job = nullptr;
    wake_.wait(lock, [&] {
      for (Job* candidate : jobs_) {
        if (candidate->next.load() < candidate->count && comes_first(*candidate)) job = candidate;
      }
      return stopping_ || job != nullptr;
    });
    if (stopping_) return;
    ++job->helpers;
    lock.unlock();
    work(*job, true);
    lock.lock();
    if (--job->helpers == 0) job->left.notify_one();
  }
}

}  // namespace peercached
