// Socket functions that both sides use.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace peercached::tcp {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() { close(); }

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  // Ends the connection in both directions and wakes every thread that waits on it. The descriptor
  // stays open, so that no thread can mistake a new file for this one.
  void shut() const;
  void close();

 private:
  int fd_ = -1;
};

// For sendmsg() and recvmsg().
inline msghdr message_of(std::span<const iovec> pieces) {
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(pieces.data());  // only read
  message.msg_iovlen = pieces.size();
  return message;
}

struct Address {
  sockaddr_storage storage = {};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// Parses a numeric address; never blocks. The control plane resolves names. An empty host means any
// address. On failure returns false and sets `wrong` to the reason.
bool resolve(const std::string& host, uint16_t port, Address& address, std::string& wrong);

// Disables Nagle, because requests are single frames. Enables keepalive, which finds a dead host
// behind an idle connection within about a minute. Leaves buffer sizes to the kernel: setting them
// would cap them at net.core.{r,w}mem_max, 208 KiB on a stock machine.
void tune(int fd);

}  // namespace peercached::tcp
