// Whether a process of this host is ending: the kernel may be taking its devices away.
#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace peercached {

// False also for process 0: one of another PID namespace, which cannot be seen from here.
inline bool is_exiting(uint32_t pid) {
  constexpr unsigned kExiting = 4;  // PF_EXITING, set before the kernel closes any file
  if (pid == 0) return false;
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(stat, line)) return true;
  // The name in brackets may have spaces and brackets. The flags are the seventh field behind it.
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string skipped;
  for (int field = 0; field < 6; ++field) fields >> skipped;
  unsigned flags = 0;
  return !(fields >> flags) || (flags & kExiting) != 0;
}

}  // namespace peercached
