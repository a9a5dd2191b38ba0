// Finds pages of one `get` with overlapping destinations: both cannot be right.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "ipc/handler.h"

namespace peercached {

// The later of two overlapping pages, by address, becomes bad_range. Sorts only if the pages do not
// come in ascending order.
inline void mark_overlaps(std::span<PageRef> pages) {
  std::vector<PageRef*> order;
  order.reserve(pages.size());
  for (PageRef& page : pages) {
    if (page.status == PageStatus::pending) order.push_back(&page);
  }
  auto before = [](const PageRef* a, const PageRef* b) { return a->memory < b->memory; };
  if (!std::is_sorted(order.begin(), order.end(), before)) {
    std::stable_sort(order.begin(), order.end(), before);
  }
  const std::byte* end = nullptr;
  for (PageRef* page : order) {
    if (page->memory < end) {
      page->status = PageStatus::bad_range;
    } else {
      end = page->memory + page->length;
    }
  }
}

}  // namespace peercached
