// Names of threads, as `top -H` and `peercachectl process` show them, and their class.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <thread>
#include <utility>

namespace peercached {

// At most 15 characters: the kernel refuses longer names, and the thread keeps that of its process.
inline void name_thread(const char* name) { ::pthread_setname_np(::pthread_self(), name); }

template <typename Work>
std::thread named_thread(const char* name, Work work) {
  return std::thread([name, work = std::move(work)] {
    name_thread(name);
    work();
  });
}

// SCHED_BATCH: this thread has a normal share of processor time, but when it wakes up it does not
// preempt a running thread. For threads that nobody waits for.
inline void run_as_batch() {
  const sched_param parameters{};
  ::pthread_setschedparam(::pthread_self(), SCHED_BATCH, &parameters);
}

}  // namespace peercached
