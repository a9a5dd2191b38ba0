#include "engine/storage/hinted_pages.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "pool/held_slots.h"

namespace peercached {

void HintedPages::brought(const Digest& namespace_id, uint64_t epoch,
                          std::span<const Digest> digests) {
  const uint32_t slot = namespaces.pool_slot_of(namespace_id, epoch);
  if (slot != 0) pool.set_hinted(slot, digests);
}

uint64_t HintedPages::unused_bytes(const Digest& namespace_id, uint64_t epoch) {
  const uint32_t slot = namespaces.pool_slot_of(namespace_id, epoch);
  return slot == 0 ? 0 : pool.use_of(slot).hinted_bytes;
}

std::string HintedPages::retain(const Digest& namespace_id, uint64_t epoch,
                                std::span<const Digest> digests, uint32_t for_ms,
                                uint64_t bytes_max, uint64_t namespace_bytes_max,
                                std::span<PageStatus> statuses) {
  std::fill(statuses.begin(), statuses.end(), PageStatus::absent);
  const uint32_t slot = namespaces.pool_slot_of(namespace_id, epoch);
  if (slot == 0) return "";
  const TimePoint until = Deadline::after_ms(std::min(for_ms, kPinMsMax)).at;
  std::string why = retains.retain(slot, digests, until, bytes_max, namespace_bytes_max, statuses);
  janitor.watch_holds();
  return why;
}

void HintedPages::first_to_go(const Digest& namespace_id, uint64_t epoch,
                              std::span<const Digest> digests, std::span<PageStatus> statuses) {
  std::fill(statuses.begin(), statuses.end(), PageStatus::absent);
  const uint32_t slot = namespaces.pool_slot_of(namespace_id, epoch);
  if (slot != 0) pool.first_to_go(slot, digests, statuses);
}

void HintedPages::to_disk(const Digest& namespace_id, uint64_t epoch,
                          std::span<const Digest> digests, bool write,
                          std::span<PageStatus> statuses) {
  first_to_go(namespace_id, epoch, digests, statuses);
  std::vector<Digest> on_disk, not_written;
  for (size_t i = 0; i < digests.size(); ++i) {
    const auto written = disk.find(digests[i]);
    const bool is_own = written && written->namespace_id == namespace_id;
    if (statuses[i] == PageStatus::absent) {
      if (is_own) statuses[i] = PageStatus::ok;  // it was evicted
    } else if (is_own) {
      on_disk.push_back(digests[i]);
    } else {
      not_written.push_back(digests[i]);
      statuses[i] = PageStatus::pending;
    }
  }
  pool.evict(on_disk);
  if (!write || not_written.empty()) return;
  std::vector<PinnedPage> pinned(not_written.size());
  pool.pin(not_written, nullptr, false, pinned);
  HeldSlots pages(pool);
  for (PinnedPage& page : pinned)
    if (page) pages.take(page);
  disk.write_behind(namespace_id, epoch, std::move(pages));
}

}  // namespace peercached
