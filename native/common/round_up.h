#pragma once

#include <cstdint>

namespace peercached {

/// The smallest multiple of `step` that is not below `value`.
constexpr uint64_t round_up(uint64_t value, uint64_t step) {
  return (value + step - 1) / step * step;
}

}  // namespace peercached
