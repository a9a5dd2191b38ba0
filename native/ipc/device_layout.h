// Where the pages of a request lie in memory of a device, and whether that can be.
#pragma once

#include <cstdint>
#include <vector>

#include "device/device.h"
#include "ipc/wire.h"

namespace peercached {

// All Rows are on one device.
struct DeviceLayout {
  struct Rows : ipc::Rows {
    const device::Memory* memory = nullptr;
  };
  std::vector<Rows> rows;
};

namespace ipc {

// The numbers of pages that the layout has, from 0 on. 0: it is wrong for pages of so many bytes.
//
// Its rows must fill a page, each byte once: a set of a page with holes would store what was in the
// pool's memory before. And they must not overlap in memory, nor may two pages: a get could not
// fill both.
uint64_t page_numbers(const DeviceLayout& layout, uint64_t page_bytes);

}  // namespace ipc
}  // namespace peercached
