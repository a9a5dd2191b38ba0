// A few helper threads share the copying of one large batch with the thread that asked.
//
// The caller always works too, so a batch never waits for a helper. The caller copies small batches
// alone, because waking a helper costs more than copying a megabyte.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace peercached {

class CopyCrew {
 public:
  explicit CopyCrew(unsigned helpers);
  ~CopyCrew();

  // Calls task(i) once for each i < count, from several threads. Returns when all are done.
  void run(size_t count, uint64_t bytes, const std::function<void(size_t)>& task);

 private:
  struct Job;
  void help();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Job*> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace peercached
