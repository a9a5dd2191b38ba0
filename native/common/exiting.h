// Whether a process of this host is ending: the kernel may be taking its devices away.
#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace peercached {

// The flags of a process; 0: it cannot be seen. It is gone, or hidden (ProtectProc=, hidepid=), or
// of another PID namespace.
inline unsigned flags_of(uint32_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(stat, line);
  // The name in brackets may have spaces and brackets. The flags are the seventh field behind it.
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string skipped;
  for (int field = 0; field < 6; ++field) fields >> skipped;
  unsigned flags = 0;
  fields >> flags;
  return flags;
}

// Whether this process can see it.
inline bool is_visible(uint32_t pid) { return flags_of(pid) != 0; }

// `pid` was visible before, or is 0: then nobody knows.
inline bool is_exiting(uint32_t pid) {
  constexpr unsigned kExiting = 4;  // PF_EXITING, set before the kernel closes any file
  if (pid == 0) return false;
  const unsigned flags = flags_of(pid);
  return flags == 0 || (flags & kExiting) != 0;
}

}  // namespace peercached
