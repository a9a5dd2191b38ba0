// Mutexes. Clang checks their use at compile time (-Wthread-safety, in `make check`). State names
// the mutex that guards it (GUARDED_BY), and a function names the mutex that its caller must hold
// (REQUIRES). Other compilers see only the std types inside.
//
// https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
#pragma once

#include <condition_variable>
#include <mutex>
#include <shared_mutex>

#include "common/clock.h"

#ifdef __clang__
#define THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define THREAD_SAFETY(attribute)
#endif

// Of state.
#define GUARDED_BY(mutex) THREAD_SAFETY(guarded_by(mutex))
#define PT_GUARDED_BY(mutex) THREAD_SAFETY(pt_guarded_by(mutex))  // of what a pointer points to
// Of functions: the caller holds the mutex.
#define REQUIRES(...) THREAD_SAFETY(requires_capability(__VA_ARGS__))
#define REQUIRES_SHARED(...) THREAD_SAFETY(requires_shared_capability(__VA_ARGS__))
// Of mutexes and locks themselves.
#define CAPABILITY(name) THREAD_SAFETY(capability(name))
#define SCOPED_CAPABILITY THREAD_SAFETY(scoped_lockable)
#define ACQUIRE(...) THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define ACQUIRE_SHARED(...) THREAD_SAFETY(acquire_shared_capability(__VA_ARGS__))
#define RELEASE(...) THREAD_SAFETY(release_capability(__VA_ARGS__))
#define ASSERT_CAPABILITY(...) THREAD_SAFETY(assert_capability(__VA_ARGS__))

namespace peercached {

class CAPABILITY("mutex") Mutex {
 public:
  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }
  // Tells clang that the mutex is held, in a lambda or a class that it cannot follow. Checks
  // nothing.
  void assert_held() const ASSERT_CAPABILITY(this) {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds the mutex for a scope.
template <typename M>
class SCOPED_CAPABILITY ScopedLock {
 public:
  explicit ScopedLock(M& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~ScopedLock() RELEASE() { mutex_.unlock(); }
  ScopedLock(const ScopedLock&) = delete;
  ScopedLock& operator=(const ScopedLock&) = delete;

 private:
  M& mutex_;
};
using MutexLock = ScopedLock<Mutex>;

// Lets go of a mutex that the caller holds, for a scope.
class SCOPED_CAPABILITY MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) RELEASE(mutex) : mutex_(mutex) { mutex_.unlock(); }
  ~MutexUnlock() RELEASE() { mutex_.lock(); }  // RELEASE: ends what the constructor began
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  Mutex& mutex_;
};

// Wakes without reason, too: wait in a loop over the condition.
class CondVar {
 public:
  void wait(Mutex& mutex) REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    changed_.wait(lock);  // NOLINT(bugprone-spuriously-wake-up-functions)
    lock.release();
  }
  // False: `until` has passed.
  bool wait_until(Mutex& mutex, TimePoint until) REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    // NOLINTNEXTLINE(bugprone-spuriously-wake-up-functions)
    const bool in_time = changed_.wait_until(lock, until) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  void notify_one() { changed_.notify_one(); }
  void notify_all() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

// One writer, or any number of readers.
class CAPABILITY("mutex") SharedMutex {
 public:
  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }
  void lock_shared() ACQUIRE_SHARED() { mutex_.lock_shared(); }
  void unlock_shared() THREAD_SAFETY(release_shared_capability()) { mutex_.unlock_shared(); }

 private:
  std::shared_mutex mutex_;
};

using WriterLock = ScopedLock<SharedMutex>;

class SCOPED_CAPABILITY ReaderLock {
 public:
  explicit ReaderLock(SharedMutex& mutex) ACQUIRE_SHARED(mutex) : mutex_(mutex) {
    mutex_.lock_shared();
  }
  ~ReaderLock() RELEASE() { mutex_.unlock_shared(); }
  ReaderLock(const ReaderLock&) = delete;
  ReaderLock& operator=(const ReaderLock&) = delete;

 private:
  SharedMutex& mutex_;
};

}  // namespace peercached
