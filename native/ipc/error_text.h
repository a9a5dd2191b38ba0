#pragma once

#include <cerrno>
#include <cstring>
#include <string>

namespace peercached::ipc {

/// What the system says about `errno`.
inline std::string error_text() { return std::strerror(errno); }

}  // namespace peercached::ipc
