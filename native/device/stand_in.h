// Plays devices for tests. A memfd is the memory of a device. Its last page makes copies fail.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "device/device.h"

namespace peercached::device {

// At the beginning of the memfd's last page, which is not part of the allocation. Tests write it.
struct StandInFaults {
  std::atomic<uint32_t> delay_us;  // before each piece
  // So many more pieces are copied, then the device is lost. 0: never.
  std::atomic<uint32_t> fail_after;
  std::atomic<uint32_t> backwards;  // 1: pieces are copied in reverse order
  std::atomic<uint32_t> held;       // 1: copies wait until it is 0
  std::atomic<uint32_t> held_from;  // only those of pieces from this byte on
  std::atomic<uint32_t> refused;    // so many more operations end as `failed`, half done
};
inline constexpr uint64_t kStandInPageBytes = 4096;

std::unique_ptr<Devices> make_stand_in();

}  // namespace peercached::device
