#include "common/fault_guard.h"

#include <ucontext.h>

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <mutex>

namespace peercached {
namespace {

struct Guard {
  sigjmp_buf landing;
  uintptr_t begin, end;
  Guard* outer;
};

// Initial-exec: the handler must not make the loader allocate a TLS block.
[[gnu::tls_model("initial-exec")]] thread_local Guard* current_guard = nullptr;

struct sigaction previous_action;

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  if (info->si_code > 0) {  // from the kernel, not from kill()
    for (Guard* guard = current_guard; guard != nullptr; guard = guard->outer) {
      if (at >= guard->begin && at < guard->end) {
        current_guard = guard->outer;
        // Restores the mask of the moment before the fault. sigsetjmp would have to ask the kernel
        // for it before every guarded page.
        ::pthread_sigmask(SIG_SETMASK, &static_cast<ucontext_t*>(context)->uc_sigmask, nullptr);
        siglongjmp(guard->landing, 1);
      }
    }
  }
  if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
    previous_action.sa_sigaction(signal, info, context);
  } else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
    previous_action.sa_handler(signal);
  } else if (info->si_code > 0 || previous_action.sa_handler == SIG_DFL) {
    // Not ours. With the default action back, the access faults again and ends the process, as
    // without us. A signal that was sent is sent again.
    struct sigaction action = {};
    action.sa_handler = SIG_DFL;
    ::sigaction(signal, &action, nullptr);
    if (info->si_code <= 0) ::raise(signal);
  }
}

}  // namespace

void install_fault_guard() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, &previous_action);
  });
}

bool guarded(const void* base, size_t bytes, void (*body)(void* context), void* context) {
  Guard guard;
  // Widened to whole pages, because a failed page may be reported by its first address.
  constexpr uintptr_t kPageMask = 4095;
  guard.begin = reinterpret_cast<uintptr_t>(base) & ~kPageMask;
  guard.end = (reinterpret_cast<uintptr_t>(base) + bytes + kPageMask) & ~kPageMask;
  guard.outer = current_guard;
  if (sigsetjmp(guard.landing, 0) != 0) return false;
  current_guard = &guard;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  body(context);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  current_guard = guard.outer;
  return true;
}

}  // namespace peercached
