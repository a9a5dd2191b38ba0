// How a client waits in the program that it runs in.
//
// Everything in this folder runs under the interpreter's lock, which is released in these waits and
// nowhere else. So other threads, signal handlers and forks happen only during a wait, and no other
// lock is needed.
#pragma once

#include <poll.h>

#include <chrono>

#include "common/clock.h"

namespace peercached::client {

class Waits {
 public:
  virtual ~Waits() = default;

  // Until `fd` has one of `events` (POLLIN, POLLOUT), or the time has come: whether it has. -1 has
  // none. Signal handlers of the program run meanwhile; what they raise is thrown.
  virtual bool ready(int fd, short events, TimePoint until) = 0;

  // Nobody comes in between but other threads: for what has to be finished first.
  virtual void pause(std::chrono::microseconds time) = 0;
};

}  // namespace peercached::client
