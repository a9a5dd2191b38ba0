#include "engine/paths/device_pages.h"

#include <memory>
#include <stdexcept>

namespace peercached {
namespace {

// The pages of one operation. It bounds how long a copy goes on behind the deadline.
constexpr uint64_t kStepBytes = 32 << 20;
constexpr size_t kStepPieces = 16'384;

// By layer, as an engine needs them.
std::vector<device::Piece> pieces_of(std::span<const DevicePage> pages) {
  const std::vector<DeviceLayout::Rows>& layout = pages[0].page->layout->rows;
  std::vector<device::Piece> pieces;
  pieces.reserve(layout.size() * pages.size());
  for (const DeviceLayout::Rows& rows : layout) {
    for (const DevicePage& one : pages) {
      pieces.push_back({rows.memory, rows.at + one.page->number * rows.page_stride,
                        one.host + rows.page_at, rows.row_bytes, rows.rows, rows.row_pitch,
                        rows.page_pitch});
    }
  }
  return pieces;
}

PageStatus copied(device::Devices& devices, device::Direction direction,
                  std::span<const DevicePage> pages) noexcept {
  try {
    const auto copies = devices.start(direction, pieces_of(pages));
    switch (copies->wait_until(TimePoint::max())) {
      case device::Outcome::done:
        return PageStatus::ok;
      case device::Outcome::lost:
        return PageStatus::region_lost;
      default:
        return PageStatus::error;
    }
  } catch (const std::exception&) {
    return PageStatus::error;  // of memory, or of a device that was lost before
  }
}

}  // namespace

void copy_device_pages(device::Devices& devices, device::Direction direction,
                       std::span<const DevicePage> pages, WriteGate& gate, Deadline deadline) {
  while (!pages.empty()) {
    size_t step = 0;
    uint64_t bytes = 0;
    const size_t rows = pages[0].page->layout->rows.size();
    while (step < pages.size() && bytes < kStepBytes && step * rows < kStepPieces)
      bytes += pages[step++].page->length;
    PageStatus status = PageStatus::deadline;
    if (!deadline.passed() && gate.enter()) {
      status = copied(devices, direction, pages.first(step));  // throws nothing
      gate.leave();
    }
    for (const DevicePage& one : pages.first(step)) one.page->status = status;
    pages = pages.subspan(step);
  }
}

}  // namespace peercached
