// Who knocks at the workers' socket, by the kernel's word (SO_PEERCRED), and whether they may in:
// by user and group, and not too many connections of one process or user, so that whoever floods
// the socket leaves room for the others.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace peercached::ipc {

struct Visitor {
  uint32_t pid = 0;  // 0: of a container whose processes cannot be seen from here
  uint32_t uid = UINT32_MAX, gid = UINT32_MAX;
  std::vector<uint32_t> groups;  // supplementary

  // Of the socket's other end.
  static Visitor at(int socket);
  std::string name() const;  // for people
};

struct Admission {
  // Both empty: whoever the socket's mode lets connect. Root and the daemon's own user always may.
  std::vector<uint32_t> users, groups;
  unsigned per_process_max = 0, per_user_max = 0;  // connections; 0: as many as there may be

  bool permits(const Visitor& visitor) const;
};

// Connections at a time, by whose they are. Not thread safe.
class Crowd {
 public:
  explicit Crowd(const Admission& admission) : admission_(admission) {}

  // Empty: counted in. Else why not, for people.
  std::string enter(const Visitor& visitor);
  void leave(const Visitor& visitor);

 private:
  const Admission& admission_;
  std::map<uint32_t, unsigned> by_process_, by_user_;
};

}  // namespace peercached::ipc
