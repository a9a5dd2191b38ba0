#include "ipc/device_layout.h"

#include <algorithm>
#include <tuple>

namespace peercached::ipc {
namespace {

// A run of bytes: where (of a page: null), from, to.
using Run = std::tuple<const device::Memory*, uint64_t, uint64_t>;

bool overlap(std::vector<Run>& runs) {
  std::ranges::sort(runs);
  return std::ranges::adjacent_find(runs, [](const Run& one, const Run& next) {
           return std::get<0>(one) == std::get<0>(next) && std::get<2>(one) > std::get<1>(next);
         }) != runs.end();
}

// How many pages of these rows the memory has; 0: not one, or two would overlap.
uint64_t numbers_of(const DeviceLayout::Rows& rows) {
  uint64_t last = 0, end = 0;  // of page 0
  if (__builtin_mul_overflow(rows.row_pitch, uint64_t{rows.rows} - 1, &last) ||
      __builtin_add_overflow(rows.at, last, &end) ||
      __builtin_add_overflow(end, uint64_t{rows.row_bytes}, &end) || end > rows.memory->bytes() ||
      rows.page_stride < end - rows.at) {
    return 0;
  }
  return (rows.memory->bytes() - end) / rows.page_stride + 1;
}

// The runs of page 0 in memory are added to `in_memory`.
uint64_t pages_of(const DeviceLayout& layout, uint64_t& rows_left, std::vector<Run>& in_memory) {
  uint64_t numbers = UINT64_MAX, bytes = 0;
  for (const DeviceLayout::Rows& rows : layout.rows) {
    if (rows.rows == 0 || rows.row_bytes == 0 || rows.rows > rows_left || rows.stage >= kRowsMax)
      return 0;
    rows_left -= rows.rows;
    bytes += uint64_t{rows.rows} * rows.row_bytes;
    numbers = std::min(numbers, numbers_of(rows));
  }
  if (numbers == 0 || bytes != layout.page_bytes) return 0;

  // As many bytes as the page has: if none overlaps and none is beyond the end, they fill it.
  std::vector<Run> in_page;
  for (const DeviceLayout::Rows& rows : layout.rows) {
    for (uint64_t row = 0; row < rows.rows; ++row) {
      const uint64_t here = rows.page_at + row * rows.page_pitch;
      const uint64_t there = rows.at + row * rows.row_pitch;
      if (here + rows.row_bytes > layout.page_bytes) return 0;
      in_page.emplace_back(nullptr, here, here + rows.row_bytes);
      in_memory.emplace_back(rows.memory, there, there + rows.row_bytes);
    }
  }
  return overlap(in_page) ? 0 : numbers;
}

}  // namespace

void count_pages(std::span<DeviceLayout> layouts) {
  uint64_t rows_left = kRowsOfPageMax;
  std::vector<Run> in_memory;
  for (DeviceLayout& layout : layouts) layout.pages = pages_of(layout, rows_left, in_memory);
  if (overlap(in_memory)) {
    for (DeviceLayout& layout : layouts) layout.pages = 0;
  }
}

}  // namespace peercached::ipc
