#pragma once

#include <string>
#include <system_error>

namespace peercached {

// The system's text for an errno. Thread safe, unlike strerror.
inline std::string error_text(int error) { return std::generic_category().message(error); }

}  // namespace peercached
