#pragma once

#include <string>

namespace peercached {

inline bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace peercached
