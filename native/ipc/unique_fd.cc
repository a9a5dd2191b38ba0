#include "ipc/unique_fd.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <deque>
#include <system_error>
#include <thread>

#include "common/mutex.h"
#include "common/thread_name.h"

#ifndef sigev_notify_thread_id  // in older C libraries
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace peercached::ipc {
namespace {

constexpr long kInterruptNs = 1'000'000;
// Ignored by default, so that a late one harms nobody.
constexpr int kInterruptSignal = SIGURG;
constexpr unsigned kAsideThreadsMax = 4;  // freeing a memfd occupies one for seconds

// Interrupts this thread's system calls, once per kInterruptNs.
class Interrupts {
 public:
  Interrupts() {
    [[maybe_unused]] static const int handled = [] {
      struct sigaction action = {};  // without SA_RESTART; an ignored signal would not interrupt
      action.sa_handler = [](int) {};
      return ::sigaction(kInterruptSignal, &action, nullptr);
    }();
    sigset_t signals;
    ::sigemptyset(&signals);
    ::sigaddset(&signals, kInterruptSignal);
    ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    sigevent event = {};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = kInterruptSignal;
    event.sigev_notify_thread_id = static_cast<pid_t>(::syscall(SYS_gettid));
    running_ = ::timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
    const itimerspec period = {{0, kInterruptNs}, {0, kInterruptNs}};
    if (running_) ::timer_settime(timer_, 0, &period, nullptr);
  }
  ~Interrupts() {
    if (running_) ::timer_delete(timer_);
  }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

 private:
  timer_t timer_ = {};
  bool running_ = false;
};

struct Aside {
  Mutex mutex;
  std::deque<UniqueFd> waiting GUARDED_BY(mutex);
  unsigned threads GUARDED_BY(mutex) = 0;

  void close_all() {
    name_thread("close aside");
    for (;;) {
      UniqueFd next;
      MutexLock lock(mutex);
      if (waiting.empty()) {
        --threads;
        return;
      }
      next = std::move(waiting.front());
      waiting.pop_front();
    }  // unlocks, then closes
  }
};

}  // namespace

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) {
    const Interrupts interrupts;
    ::close(fd_);  // if interrupted, it is closed all the same
  }
  fd_ = fd;
}

void close_aside(UniqueFd fd) {
  if (!fd) return;
  static Aside& aside = *new Aside;  // its threads may outlive everything else
  {
    MutexLock lock(aside.mutex);
    aside.waiting.push_back(std::move(fd));
    if (aside.threads == kAsideThreadsMax) return;
    ++aside.threads;
  }
  try {
    std::thread([] { aside.close_all(); }).detach();
  } catch (const std::system_error&) {  // it stays until the next one comes
    MutexLock lock(aside.mutex);
    --aside.threads;
  }
}

}  // namespace peercached::ipc
