// Exclusive claim to a socket path, safe across crashes and races.
//
// The claim is an flock on `<path>.lock`, which the kernel releases when its holder dies. Probing
// the socket is not enough. Two daemons that start together may each find the other not listening
// yet and unlink its socket.
#pragma once

#include <cstdint>
#include <string>

#include "ipc/unique_fd.h"

namespace peercached::ipc {

class SocketPath {
 public:
  // Claims `path`, replaces a dead daemon's socket and binds; nobody can connect yet. Makes the
  // parent directory if it is missing. Throws std::runtime_error with the path and the remedy.
  // `group`: the socket's; -1: the daemon's own.
  SocketPath(const std::string& path, uint32_t mode, int64_t group = -1);
  // Removes the socket but keeps the lock file. Otherwise a third daemon could lock a new file
  // while a second one waits on the old.
  ~SocketPath();
  SocketPath(const SocketPath&) = delete;
  SocketPath& operator=(const SocketPath&) = delete;

  void listen();  // Throws std::runtime_error.
  int listener() const { return listener_.get(); }

 private:
  std::string path_;
  UniqueFd lock_, listener_;
};

}  // namespace peercached::ipc
