// NVIDIA's GPUs through the driver API, which is loaded at run time: no CUDA is needed to build,
// nor to run where there is no GPU.
//
// Memory arrives by CUDA IPC, or as a POSIX descriptor of the virtual memory management API. Each
// GPU has the primary context of this process, and one stream per direction. Host memory is
// registered with the driver, so copies run at the speed of pinned memory.
//
// Source: CUDA Driver API reference, "Memory Management", "Virtual Memory Management".
#pragma once

#include <memory>

#include "device/device.h"

namespace peercached::device {

// Throws std::runtime_error with the remedy if there is no driver, or no GPU can be used.
std::unique_ptr<Devices> make_cuda();

}  // namespace peercached::device
