// The few things both sides do with sockets.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <utility>

namespace peercached::tcp {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Socket() { close(); }

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  // Ends the connection for both directions and wakes whoever waits on it; the descriptor
  // stays, so that no other thread can mistake a new file for this one.
  void shut() const;
  void close();

 private:
  int fd_ = -1;
};

struct Address {
  sockaddr_storage storage = {};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// A numeric address at once; a name by the system's resolver (may block). On failure false,
// and `wrong` says why. An empty host is "any".
bool resolve(const std::string& host, uint16_t port, Address& address, std::string& wrong);

// No Nagle (requests are single frames), and probes that find a dead host behind an idle
// connection within about a minute. Buffer sizes are left to the kernel's tuning: setting
// them would cap them at net.core.{r,w}mem_max, 208 KiB on a stock machine.
void tune(int fd);

}  // namespace peercached::tcp
