// For threads whose work nobody waits for.
#pragma once

#include <pthread.h>
#include <sched.h>

namespace peercached {

// SCHED_BATCH: this thread has a normal share of processor time, but when it wakes up it does not
// preempt a running thread.
inline void run_as_batch() {
  const sched_param parameters{};
  ::pthread_setschedparam(::pthread_self(), SCHED_BATCH, &parameters);
}

}  // namespace peercached
