#include "engine/paths/get_pages.h"

#include <algorithm>

namespace peercached {

void GetPages::got(size_t page, Source source) {
  pages[page].status = PageStatus::ok;
  farthest = std::max(farthest, source);
  ++looked.found[static_cast<size_t>(source)];
  counters.hits[static_cast<size_t>(source)].add();
  counters.bytes_got.add(pages[page].length);
}

void GetPages::missed(const FoundPage& found, PageStatus status) {
  PageRef& page = pages[found.page];
  page.status = status;
  if (status != PageStatus::deadline) locations.forget(digests[found.page]);
  const bool in_time = !context.deadline.passed() && !context.gate->fenced();
  const bool again = status == PageStatus::stale || status == PageStatus::error ||
                     status == PageStatus::length_mismatch ||
                     (status == PageStatus::deadline && in_time);
  if (again && trust != Trust::nothing) {
    counters.stale_retries.add();
    page.status = PageStatus::pending;
    failed[found.page] = found.row.holder;
  }
}

void GetPages::not_read(size_t page) {
  unread.resize(pages.size());
  unread[page] = 1;
}

void GetPages::blame_disks() {
  for (size_t i = 0; i < unread.size(); ++i) {
    PageStatus& status = pages[i].status;
    const bool missed = status == PageStatus::absent || status == PageStatus::stale;
    if (unread[i] != 0 && missed) status = PageStatus::error;
  }
}

}  // namespace peercached
