// How pages of a request lie in memory of a device, and whether that can be.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"
#include "ipc/wire.h"

namespace peercached {

struct DeviceLayout {
  struct Rows : ipc::Rows {
    const device::Memory* memory = nullptr;
  };
  std::vector<Rows> rows;   // in the order of their stages
  uint64_t last = 0;        // the highest number of the pages that have this layout
  uint64_t page_bytes = 0;  // by its rows: see count_pages()
  uint64_t pages = 0;       // numbers of pages are below; 0: the layout is wrong

  std::span<const Rows> of_stage(uint32_t stage) const {
    const auto found = std::ranges::equal_range(rows, stage, {}, &Rows::stage);
    return {found.begin(), found.end()};
  }
};

namespace ipc {

// Fills in `page_bytes` and `pages` of the layouts of a request.
//
// Rows must fill a page, each byte once: a set of a page with holes would store what was in the
// pool's memory before. And they must not overlap in memory, nor may two pages: a get could not
// fill both.
void count_pages(std::span<DeviceLayout> layouts);

}  // namespace ipc
}  // namespace peercached
