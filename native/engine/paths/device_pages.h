// Copies whole pages between memory of devices and memory of this host.
//
// A copy cannot be stopped. So a page is begun only before the deadline, and the answer waits for
// it. For this time the thread is inside the worker's gate (common/write_gate.h).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/clock.h"
#include "common/write_gate.h"
#include "device/device.h"
#include "ipc/handler.h"

namespace peercached {

struct DevicePage {
  PageRef* page = nullptr;    // has a layout; all pages of a call have the same
  std::byte* host = nullptr;  // page->length bytes
};

// Every page gets a status: ok, deadline, error, or region_lost if its device is lost.
void copy_device_pages(device::Devices& devices, device::Direction direction,
                       std::span<const DevicePage> pages, WriteGate& gate, Deadline deadline);

}  // namespace peercached
