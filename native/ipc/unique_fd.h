// A file descriptor that closes itself, and does not linger.
//
// The last close of a socket waits for as long as its owner chose (SO_LINGER), and any process may
// pass such a socket. Closing a Unix socket closes the files in its queue, too, so this concerns
// each socket that a stranger can write to. Freeing a large memfd takes seconds, and cannot be
// interrupted. Hence two rules:
//
// - A signal interrupts a close after a millisecond (not a memfd's).
// - Sockets that strangers can write to are closed by close_aside().
//
// A file that a worker passes is closed on the thread of its connection, which serves nobody else.
#pragma once

#include <utility>

namespace peercached::ipc {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

// Closes it on another thread. Nobody waits for that thread, not even the end of the process.
void close_aside(UniqueFd fd);

}  // namespace peercached::ipc
