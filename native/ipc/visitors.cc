#include "ipc/visitors.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace peercached::ipc {
namespace {

bool has(const std::vector<uint32_t>& list, uint32_t id) {
  return std::find(list.begin(), list.end(), id) != list.end();
}

unsigned count_of(const std::map<uint32_t, unsigned>& counts, uint32_t id) {
  const auto found = counts.find(id);
  return found == counts.end() ? 0 : found->second;
}

void take_one(std::map<uint32_t, unsigned>& counts, uint32_t id) {
  const auto found = counts.find(id);
  if (found != counts.end() && --found->second == 0) counts.erase(found);
}

}  // namespace

Visitor Visitor::at(int socket) {
  Visitor visitor;
  ucred peer = {};
  socklen_t bytes = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return visitor;
  visitor.pid = static_cast<uint32_t>(peer.pid);
  visitor.uid = peer.uid;
  visitor.gid = peer.gid;
  visitor.groups.resize(64);
  for (;;) {
    bytes = static_cast<socklen_t>(visitor.groups.size() * sizeof(uint32_t));
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, visitor.groups.data(), &bytes) == 0) {
      visitor.groups.resize(bytes / sizeof(uint32_t));
      return visitor;
    }
    // ERANGE returns the required size; a user has at most 65536 groups.
    if (errno != ERANGE) break;
    visitor.groups.resize(bytes / sizeof(uint32_t));
  }
  visitor.groups.clear();
  return visitor;
}

std::string Visitor::name() const {
  return "process " + std::to_string(pid) + " of user " + std::to_string(uid) + ", group " +
         std::to_string(gid);
}

bool Admission::permits(const Visitor& visitor) const {
  if (users.empty() && groups.empty()) return true;
  if (visitor.uid == 0 || visitor.uid == ::geteuid()) return true;
  if (has(users, visitor.uid) || has(groups, visitor.gid)) return true;
  return std::any_of(visitor.groups.begin(), visitor.groups.end(),
                     [this](uint32_t group) { return has(groups, group); });
}

std::string Crowd::enter(const Visitor& visitor) {
  const unsigned of_process = count_of(by_process_, visitor.pid);
  const unsigned of_user = count_of(by_user_, visitor.uid);
  const bool known = visitor.pid != 0;
  if (known && admission_.per_process_max != 0 && of_process >= admission_.per_process_max) {
    return visitor.name() + " already has " + std::to_string(of_process) +
           " connections, the limit for one process: close some";
  }
  if (admission_.per_user_max != 0 && of_user >= admission_.per_user_max) {
    return visitor.name() + ": that user already has " + std::to_string(of_user) +
           " connections, the limit for one user: close some, or raise workers_max";
  }
  ++by_process_[visitor.pid];
  ++by_user_[visitor.uid];
  return "";
}

void Crowd::leave(const Visitor& visitor) {
  take_one(by_process_, visitor.pid);
  take_one(by_user_, visitor.uid);
}

}  // namespace peercached::ipc
