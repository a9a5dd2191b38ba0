// How a program waits that has a client in it.
//
// Everything in this folder runs under one lock, the interpreter's, which is given up in these
// waits and nowhere else. So no other lock is needed, and nothing is half done whenever another
// thread, a signal handler or a fork comes in between: that is only here.
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
