#include "pool/recovery.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <thread>

#include "common/copy.h"
#include "common/mutex.h"
#include "pool/page_note.h"
#include "pool/slot_header.h"

namespace peercached {

namespace {

// One thread's results, merged once at its end to avoid contention.
struct Finds {
  std::vector<RecoveredPage> pages;
  uint64_t damaged_headers = 0, damaged_payloads = 0, unfinished = 0;
};

void look_at(std::byte* slot, const SpanPlace& span, uint32_t span_index, uint32_t slot_index,
             Finds& finds) {
  RecoveredPage page;
  std::memcpy(&page.header, slot, sizeof page.header);
  if (page.header.state == kSlotInvalid) return;
  const uint64_t room = span.stride_bytes - sizeof(SlotHeader) - sizeof(PageNote);
  uint64_t* reason = nullptr;
  PageNote note;
  if (!sealed(page.header) || page.header.length == 0 || page.header.length > room) {
    reason = &finds.damaged_headers;
  } else {
    std::memcpy(&note, slot + span.stride_bytes - sizeof note, sizeof note);
    if (!sealed(note) || note.page != page.header.digest)
      reason = &finds.unfinished;
    else if (checksum(slot + sizeof(SlotHeader), page.header.length) != page.header.checksum)
      reason = &finds.damaged_payloads;
  }
  if (reason != nullptr) {
    ++*reason;
    invalidate_header(slot);
    return;
  }
  page.namespace_id = note.namespace_id;
  page.epoch = note.epoch;
  page.set_at = note.set_at;
  page.stamp = note.stamp;
  page.span = span_index;
  page.slot = slot_index;
  finds.pages.push_back(page);
}

}  // namespace

std::vector<RecoveredPage> whole_pages(std::byte* base, std::span<const SpanPlace> spans,
                                       unsigned threads, RecoveryReport& report) {
  std::vector<RecoveredPage> pages;
  std::atomic<uint32_t> next{0};
  Mutex mutex;
  const auto work = [&] {
    Finds finds;
    for (uint32_t i = next++; i < spans.size(); i = next++) {
      std::byte* slot = base + spans[i].offset;
      for (uint32_t k = 0; k < spans[i].slots; ++k, slot += spans[i].stride_bytes)
        look_at(slot, spans[i], i, k, finds);
    }
    MutexLock lock(mutex);
    std::ranges::move(finds.pages, std::back_inserter(pages));
    report.damaged_headers += finds.damaged_headers;
    report.damaged_payloads += finds.damaged_payloads;
    report.unfinished += finds.unfinished;
  };
  {
    std::vector<std::jthread> workers;
    for (unsigned i = 1; i < threads && i < spans.size(); ++i) workers.emplace_back(work);
    work();
  }
  return pages;
}

}  // namespace peercached
