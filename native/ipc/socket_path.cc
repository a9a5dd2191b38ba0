#include "ipc/socket_path.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "common/error_text.h"

namespace peercached::ipc {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& text) {
  throw std::runtime_error("socket path " + path + ": " + text);
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    refuse(path, "has " + std::to_string(path.size()) + " bytes, 1 to " +
                     std::to_string(sizeof(address.sun_path) - 1) +
                     " are possible: set socket_path to a shorter one");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

void make_parent(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  if (parent.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(parent, error);
  if (error) {
    refuse(path, "its directory cannot be made (" + error.message() +
                     "): make it, or set socket_path to one that you may write to");
  }
}

UniqueFd claim(const std::string& path) {
  const std::string lock_path = path + ".lock";
  UniqueFd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) {
    refuse(path, "cannot open " + lock_path + " (" + error_text(errno) +
                     "): set socket_path to one in a directory that you may write to");
  }
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    char pid[16] = {};
    const auto got = ::pread(lock.get(), pid, sizeof(pid) - 1, 0);
    std::string holder = got > 0 ? pid : "unknown";
    while (!holder.empty() && holder.back() == '\n') holder.pop_back();
    refuse(path, "another daemon serves it (process " + holder +
                     "): stop that one, or set socket_path to another");
  }
  const std::string pid = std::to_string(::getpid()) + "\n";
  // Only for the message above, so ignore a write failure.
  if (::ftruncate(lock.get(), 0) == 0) {
    [[maybe_unused]] const auto written = ::pwrite(lock.get(), pid.data(), pid.size(), 0);
  }
  return lock;
}

void remove_dead_socket(const std::string& path, const sockaddr_un& address) {
  struct stat status;
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return;
    refuse(path, error_text(errno));
  }
  if (!S_ISSOCK(status.st_mode)) {
    refuse(path, "is there and is no socket: remove it, or set socket_path to another");
  }
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) refuse(path, "socket(): " + error_text(errno));
  const int rc =
      ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  // EAGAIN: a full backlog, so a process listens. EPROTOTYPE: another kind of socket.
  if (rc == 0 || errno != ECONNREFUSED) {
    refuse(path, "some other program answers there: stop it, or set socket_path to another");
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    refuse(path, "a dead daemon's socket cannot be removed (" + error_text(errno) + "): remove it");
  }
}

}  // namespace

SocketPath::SocketPath(const std::string& path, uint32_t mode, int64_t group) : path_(path) {
  const sockaddr_un address = address_of(path);
  make_parent(path);
  lock_ = claim(path);
  remove_dead_socket(path, address);

  listener_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_) refuse(path, "socket(): " + error_text(errno));
  // Before bind, so that the socket is never open to more users. After bind again, because the
  // umask may have cleared bits.
  ::fchmod(listener_.get(), group < 0 ? mode : mode & 0700);
  if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    refuse(path,
           "cannot bind (" + error_text(errno) + "): set socket_path to one that you may write to");
  }
  if (group >= 0 && ::chown(path.c_str(), static_cast<uid_t>(-1), static_cast<gid_t>(group)) != 0) {
    const std::string text = error_text(errno);
    ::unlink(path.c_str());
    refuse(path, "cannot be given to group " + std::to_string(group) + " (" + text +
                     "): the daemon's user must be in socket_group");
  }
  if (::chmod(path.c_str(), mode) != 0) {
    const std::string text = error_text(errno);
    ::unlink(path.c_str());
    refuse(path, "cannot set its mode: " + text);
  }
}

void SocketPath::listen() {
  if (::listen(listener_.get(), 128) != 0) refuse(path_, "cannot listen: " + error_text(errno));
}

SocketPath::~SocketPath() {
  ::unlink(path_.c_str());
  close_aside(std::move(listener_));  // with the connections that nobody accepted
}

}  // namespace peercached::ipc
