#pragma once

#include <string>
#include <system_error>

namespace peercached {

// What the system says about an errno. Any thread may ask: strerror promises that to none.
inline std::string error_text(int error) { return std::generic_category().message(error); }

}  // namespace peercached
