// How a client waits in the program that it runs in.
//
// Everything in this folder runs under the interpreter's lock, which is released in these waits and
// nowhere else. So other threads, signal handlers and forks happen only during a wait, and no other
// lock is needed.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>

#include "common/clock.h"

namespace peercached::client {

class Waits {
 public:
  virtual ~Waits() = default;

  // Waits until `fd` has one of `events` (POLLIN, POLLOUT), or until the time has come. Returns
  // whether it has one. With -1 it only waits. The program's signal handlers run meanwhile; their
  // exceptions are thrown.
  virtual bool ready(int fd, short events, TimePoint until) = 0;

  // A get of pages of a device: those of `count` stages have landed. Runs the program's code, which
  // may throw.
  virtual void landed(uint32_t count) = 0;

  // Waits without running signal handlers, for work that must be finished first. Other threads run.
  virtual void pause(std::chrono::microseconds time) = 0;
};

}  // namespace peercached::client
