// Admission to the workers' socket, by the peer's kernel credentials (SO_PEERCRED). Checks user and
// group, and limits connections per process and user, so that nobody can flood the socket.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace peercached::ipc {

struct Visitor {
  uint32_t pid = 0;  // 0: in a pid namespace that is invisible from here
  uint32_t uid = UINT32_MAX, gid = UINT32_MAX;
  std::vector<uint32_t> groups;  // supplementary

  // The socket's peer.
  static Visitor at(int socket);
  std::string name() const;  // for messages
};

struct Admission {
  // Both empty: only the socket's mode decides. Root and the daemon's user always may.
  std::vector<uint32_t> users, groups;
  unsigned per_process_max = 0, per_user_max = 0;  // connections; 0: no limit

  bool permits(const Visitor& visitor) const;
};

// Counts open connections per process and user. Not thread safe.
class Crowd {
 public:
  explicit Crowd(const Admission& admission) : admission_(admission) {}

  // Empty: counted in. Otherwise the reason for the refusal, as a sentence.
  std::string enter(const Visitor& visitor);
  void leave(const Visitor& visitor);

 private:
  const Admission& admission_;
  std::map<uint32_t, unsigned> by_process_, by_user_;
};

}  // namespace peercached::ipc
