#include "transfer/tcp/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <cstring>

namespace peercached::tcp {
namespace {

void set_option(int fd, int level, int name, int value) {
  // Only hints: if the kernel refuses one, the transfer is still correct.
  (void)setsockopt(fd, level, name, &value, sizeof value);
}

constexpr int kKeepaliveIdleS = 30;
constexpr int kKeepaliveIntervalS = 10;
constexpr int kKeepaliveProbes = 3;

}  // namespace

void Socket::shut() const {
  if (fd_ >= 0) (void)::shutdown(fd_, SHUT_RDWR);
}

void Socket::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

bool resolve(const std::string& host, uint16_t port, Address& address, std::string& wrong) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | (host.empty() ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int rc = getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(),
                             &hints, &found);
  if (rc != 0) {
    wrong = "'" + host + "' is no address: " + gai_strerror(rc);
    return false;
  }
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.bytes = found->ai_addrlen;
  freeaddrinfo(found);
  return true;
}

void tune(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepaliveIdleS);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepaliveIntervalS);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepaliveProbes);
}

}  // namespace peercached::tcp
