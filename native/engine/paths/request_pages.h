// The pages of one request: their digests, and pages that exclude each other.
#pragma once

#include <algorithm>
#include <bit>
#include <span>
#include <utility>
#include <vector>

#include "common/identity.h"
#include "ipc/handler.h"

namespace peercached {

// A page that is already decided (a bad key, say) gets a zero digest, which is never used.
inline std::vector<Digest> digests_of(const Key128& key, std::span<const PageRef> pages) {
  std::vector<Digest> digests(pages.size());
  for (size_t i = 0; i < pages.size(); ++i) {
    if (pages[i].status == PageStatus::pending) digests[i] = digest_of(key, pages[i].key);
  }
  return digests;
}

inline size_t count_undecided(std::span<const PageRef> pages) {
  return static_cast<size_t>(std::ranges::count(pages, PageStatus::pending, &PageRef::status));
}

// The second and later pages of one key in a batch become duplicate_key.
inline void mark_duplicates(std::span<const Digest> digests, std::span<PageRef> pages) {
  const size_t mask = std::bit_ceil(pages.size() * 2 + 1) - 1;
  std::vector<uint32_t> seen(mask + 1, UINT32_MAX);
  for (size_t i = 0; i < pages.size(); ++i) {
    if (pages[i].status != PageStatus::pending) continue;
    size_t place = table_hash(digests[i]) & mask;
    while (seen[place] != UINT32_MAX && digests[seen[place]] != digests[i]) {
      place = (place + 1) & mask;
    }
    if (seen[place] == UINT32_MAX) {
      seen[place] = static_cast<uint32_t>(i);
    } else {
      pages[i].status = PageStatus::duplicate_key;
    }
  }
}

// Pages of one `get` with overlapping destinations cannot both be right: the later of two, by
// address, becomes bad_range. Sorts only if the pages do not come in ascending order. Of pages of a
// device, two with the same layout and number overlap.
inline void mark_overlaps(std::span<PageRef> pages) {
  std::vector<PageRef*> order;
  order.reserve(pages.size());
  for (PageRef& page : pages) {
    if (page.status == PageStatus::pending) order.push_back(&page);
  }
  auto before = [](const PageRef* a, const PageRef* b) {
    return a->layout != nullptr ? std::pair(a->layout, a->number) < std::pair(b->layout, b->number)
                                : a->memory < b->memory;
  };
  if (!std::is_sorted(order.begin(), order.end(), before)) {
    std::stable_sort(order.begin(), order.end(), before);
  }
  const std::byte* end = nullptr;
  const PageRef* last = nullptr;
  for (PageRef* page : order) {
    if (page->layout != nullptr) {
      if (last != nullptr && last->layout == page->layout && last->number == page->number)
        page->status = PageStatus::bad_range;
      last = page;
    } else if (page->memory < end) {
      page->status = PageStatus::bad_range;
    } else {
      end = page->memory + page->length;
    }
  }
}

}  // namespace peercached
