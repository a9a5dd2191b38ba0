// Copies whole pages between memory of devices and memory of this host.
//
// Goes in steps of some MiB, and begins the next one before the last has ended. A copy cannot be
// stopped. So a step is begun only before the deadline, and the answer waits for it. For this time
// the thread is inside the worker's gate (common/write_gate.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/clock.h"
#include "common/write_gate.h"
#include "device/device.h"
#include "engine/paths/get_pages.h"
#include "ipc/handler.h"

namespace peercached {

struct DevicePage {
  PageRef* page = nullptr;    // has a layout
  std::byte* host = nullptr;  // page->length bytes
};

// All are on one device. Every page gets a status: ok, deadline, error, or region_lost if its
// device is lost. With `tell` it copies stage by stage, and tells how many have landed.
void copy_device_pages(device::Devices& devices, device::Direction direction,
                       std::span<const DevicePage> pages, WriteGate& gate, Deadline deadline,
                       const TellStages* tell = nullptr);
// Pages of a get. The last ones that it lacks land by stage, if the worker wants to be told.
void land_device_pages(device::Devices& devices, GetPages& get, std::span<const DevicePage> pages);

}  // namespace peercached
