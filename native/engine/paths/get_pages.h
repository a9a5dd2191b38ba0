// The pages of one `get`, and what it has learnt of each. Every page ends with one status. It stays
// pending for the next place if this one does not have it, or cannot give it in time.
#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <span>
#include <vector>

#include "common/counter.h"
#include "engine/measures/counters.h"
#include "engine/records/locations.h"
#include "engine/records/locator.h"
#include "ipc/handler.h"

namespace peercached {

// A page of the get (its index) and its record.
struct FoundPage {
  size_t page;
  RecordRow row;
};
using ByHolder = std::map<HolderIndex, std::vector<FoundPage>>;
struct FoundPages {
  ByHolder resident, on_disk;  // in pools of peers; on their disks only
};

struct GetPages {
  // Shared by all threads of one get.
  struct Shared {
    Counter landed_bytes;                      // from any holder
    std::atomic<int> threads_left{16};         // for holders that are read apart
    std::atomic<size_t> device_pages_left{0};  // that have not landed
  };

  const RequestContext& context;
  Shared& shared;
  OperationCounters& counters;
  LocationCache& locations;
  const Digest* parent;  // null: none given
  std::span<PageRef> pages;
  std::span<const Digest> digests;
  uint64_t epoch;                 // of the namespace
  uint64_t removals;              // Running::changes() before anything was looked up
  Trust trust = Trust::cached;    // of this lookup; the second one is the last
  Source farthest{};              // of the places that gave a page
  Looked looked{};                // found: the pages given, by place
  std::vector<uint8_t> unread{};  // by page: 1 if a disk has it but gave nothing; or empty
  // By page: the holder that failed to give it, and its record if it has left that holder's pool.
  std::vector<HolderIndex> failed = std::vector<HolderIndex>(pages.size(), kNoHolder);
  std::map<size_t, Generation> gone{};

  // The same get for some of its pages, which the caller fills in.
  GetPages part(const RequestContext& of_part) const {
    return {of_part, shared, counters, locations, parent, {}, {}, epoch, removals, trust};
  }
  void got(size_t page, Source source) {
    pages[page].status = PageStatus::ok;
    farthest = std::max(farthest, source);
    ++looked.found[static_cast<size_t>(source)];
    counters.hits[static_cast<size_t>(source)].add();
    counters.bytes_got.add(pages[page].length);
  }
  // The record led nowhere. The page stays pending if another lookup is worthwhile.
  void missed(const FoundPage& found, PageStatus status) {
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
  // A disk has it, but gave nothing.
  void not_read(size_t page) {
    unread.resize(pages.size());
    unread[page] = 1;
  }
  // The last step: a miss becomes an error if a disk has the page but gave nothing.
  void blame_disks() {
    for (size_t i = 0; i < unread.size(); ++i) {
      PageStatus& status = pages[i].status;
      const bool missed = status == PageStatus::absent || status == PageStatus::stale;
      if (unread[i] != 0 && missed) status = PageStatus::error;
    }
  }
};

}  // namespace peercached
