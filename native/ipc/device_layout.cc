#include "ipc/device_layout.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace peercached::ipc {
namespace {

struct Run {
  uint64_t begin, end;
};

bool overlap(std::vector<Run>& runs) {
  std::ranges::sort(runs, {}, &Run::begin);
  return std::ranges::adjacent_find(runs, [](const Run& one, const Run& next) {
           return one.end > next.begin;
         }) != runs.end();
}

uint64_t extent_of(const DeviceLayout::Rows& rows) {
  return rows.row_pitch * (rows.rows - 1) + rows.row_bytes;
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

uint64_t pages_of(DeviceLayout& layout, uint64_t& rows_left) {
  uint64_t numbers = UINT64_MAX;
  layout.page_bytes = 0;
  for (const DeviceLayout::Rows& rows : layout.rows) {
    if (rows.rows == 0 || rows.row_bytes == 0 || rows.rows > rows_left || rows.stage >= kRowsMax)
      return 0;
    rows_left -= rows.rows;
    layout.page_bytes += uint64_t{rows.rows} * rows.row_bytes;
    numbers = std::min(numbers, numbers_of(rows));
  }
  if (numbers == 0) return 0;

  // As many bytes as the page has: if none overlaps and none is beyond the end, they fill it.
  std::vector<Run> in_page;
  for (const DeviceLayout::Rows& rows : layout.rows) {
    for (uint64_t row = 0; row < rows.rows; ++row) {
      const uint64_t begin = rows.page_at + row * rows.page_pitch;
      if (begin + rows.row_bytes > layout.page_bytes) return 0;
      in_page.push_back({begin, begin + rows.row_bytes});
    }
  }
  return overlap(in_page) ? 0 : numbers;
}

// Some Rows of one memory, with the memory that they take for the pages of a request.
struct Taken {
  const DeviceLayout::Rows* rows;
  uint64_t begin, end;
};

// Rows that take the same part of memory have their pages at equal distances, and no common byte.
bool overlap_in_part(std::span<const Taken> part) {
  const uint64_t stride = part[0].rows->page_stride;
  std::vector<Run> runs;  // from page to page
  for (const Taken& one : part) {
    if (one.rows->page_stride != stride) return true;
    for (uint64_t row = 0; row < one.rows->rows; ++row) {
      const uint64_t begin = (one.begin - part[0].begin + row * one.rows->row_pitch) % stride;
      const uint64_t end = begin + one.rows->row_bytes;
      runs.push_back({begin, std::min(end, stride)});
      if (end > stride) runs.push_back({0, end - stride});
    }
  }
  return overlap(runs);
}

bool overlap_in_memory(std::span<const DeviceLayout> layouts) {
  std::vector<Taken> all;
  for (const DeviceLayout& layout : layouts) {
    if (layout.pages == 0) continue;
    const uint64_t last = std::min(layout.last, layout.pages - 1);
    for (const DeviceLayout::Rows& rows : layout.rows)
      all.push_back({&rows, rows.at, rows.at + last * rows.page_stride + extent_of(rows)});
  }
  std::ranges::sort(all, [](const Taken& one, const Taken& other) {
    return std::pair(one.rows->memory, one.begin) < std::pair(other.rows->memory, other.begin);
  });
  for (size_t first = 0, next = 0; first < all.size(); first = next) {
    uint64_t end = 0;
    for (next = first; next < all.size() && all[next].rows->memory == all[first].rows->memory &&
                       (next == first || all[next].begin < end);
         ++next)
      end = std::max(end, all[next].end);
    if (overlap_in_part(std::span(all).subspan(first, next - first))) return true;
  }
  return false;
}

}  // namespace

void count_pages(std::span<DeviceLayout> layouts) {
  uint64_t rows_left = kRowsOfPageMax;
  for (DeviceLayout& layout : layouts) layout.pages = pages_of(layout, rows_left);
  if (!overlap_in_memory(layouts)) return;
  for (DeviceLayout& layout : layouts) layout.pages = 0;
}

}  // namespace peercached::ipc
