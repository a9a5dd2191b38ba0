// The right to a socket path: one daemon at a time, over crashes and races.
//
// The right is an flock on `<path>.lock`, which the kernel takes back when its holder dies.
// Asking the socket itself ("does anybody answer?") is not enough: between two daemons that
// start together, each may find the other not listening yet and unlink its socket.
#pragma once

#include <cstdint>
#include <string>

#include "ipc/unique_fd.h"

namespace peercached::ipc {

class SocketPath {
 public:
  // Claims `path`, takes over what a dead daemon left, binds and listens. Makes the parent
  // directory if it is missing. Throws std::runtime_error with the path and the remedy.
  // `group`: the socket's; -1: the daemon's own.
  SocketPath(const std::string& path, uint32_t mode, int64_t group = -1);
  // Removes the socket. The lock file stays: removing it would let a third daemon lock a new
  // file while a second one waits on the old.
  ~SocketPath();
  SocketPath(const SocketPath&) = delete;
  SocketPath& operator=(const SocketPath&) = delete;

  int listener() const { return listener_.get(); }

 private:
  std::string path_;
  UniqueFd lock_, listener_;
};

}  // namespace peercached::ipc
