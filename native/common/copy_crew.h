// A few helper threads share the copying of one large batch with the thread that asked.
//
// The caller always works too, so a batch never waits for a helper. The caller copies small batches
// alone, because waking a helper costs more than copying a megabyte.
//
// Gets come first: while one has parts left, no helper copies for a set. A request waits for the
// pages of a get, and mostly nobody for those of a set.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace peercached {

enum class CopyFor : uint8_t { get, set };

class CopyCrew {
 public:
  explicit CopyCrew(unsigned helpers);
  ~CopyCrew();

  // Calls task(i) once for each i < count, from several threads. Returns when all are done.
  void run(CopyFor use, size_t count, uint64_t bytes, const std::function<void(size_t)>& task);

 private:
  struct Job;
  void help();
  void work(Job& job, bool helps);
  bool comes_first(const Job& job) const;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Job*> jobs_;
  // That have parts which no thread has begun. Decreased under mutex_, so that no helper misses it.
  std::atomic<unsigned> gets_{0};
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace peercached
