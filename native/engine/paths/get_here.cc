#include "engine/paths/get_here.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "common/gated_copy.h"
#include "engine/paths/device_pages.h"

namespace peercached {

namespace {

// Our own disk gets at most 1/kDiskShare of the time left: a peer may have the page, too.
constexpr int kDiskShare = 2;
// Copies of fewer bytes are not measured: the measure would take longer.
constexpr uint64_t kCopyNotedMin = 256 << 10;

// Ends the step for these pages. Its status is that of the first one.
void end(TraceStep& step, const GetPages& get, std::span<const size_t> index, HolderIndex holder,
         PageStatus if_pending) {
  if (get.context.trace == nullptr) return;
  const auto is_ok = [&](size_t page) { return get.pages[page].status == PageStatus::ok; };
  const PageStatus status = get.pages[index[0]].status;
  step.done(status == PageStatus::pending ? if_pending : status, holder, index.size(),
            static_cast<size_t>(std::ranges::count_if(index, is_ok)));
}

}  // namespace

void GetHere::from_pool(GetPages& get, Source source) const {
  std::vector<Digest> wanted;
  std::vector<size_t> index;
  for (size_t i = 0; i < get.pages.size(); ++i) {
    // We cannot copy to a device: such a page comes from a peer, or not at all.
    if (get.pages[i].status != PageStatus::pending || get.pages[i].of_device) continue;
    wanted.push_back(get.digests[i]);
    index.push_back(i);
  }
  if (wanted.empty()) return;
  TraceStep step(get.context.trace, "pool", wanted.size());
  std::vector<PinnedPage> pins(wanted.size());
  pool.pin(wanted, get.parent, true, pins);
  uint64_t bytes = 0;
  for (size_t k = 0; k < pins.size(); ++k) bytes += pins[k] ? get.pages[index[k]].length : 0;
  {
    std::optional<LoadTimes::Load> load;
    if (source == Source::pool && bytes >= kCopyNotedMin)
      load.emplace(times, LoadPlace{source}, bytes);
    const TimePoint began = Clock::now();
    copy_out(get, pins, index, source);
    if (load) note(get, index, *load, began);
  }
  pool.unpin(pins);
  end(step, get, index, pins[0] ? kSelfHolder : kNoHolder, PageStatus::absent);
}

void GetHere::note(const GetPages& get, std::span<const size_t> index, LoadTimes::Load& load,
                   TimePoint began) {
  uint64_t came = 0;
  for (const size_t i : index) {
    if (get.pages[i].status == PageStatus::ok) came += get.pages[i].length;
  }
  const TimePoint now = Clock::now();
  load.took(came, now - began, now);
}

void GetHere::copy_out(GetPages& get, std::span<const PinnedPage> pins,
                       std::span<const size_t> index, Source source) const {
  std::vector<size_t> found;
  uint64_t bytes = 0;
  for (size_t k = 0; k < pins.size(); ++k) {
    if (!pins[k]) continue;
    if (pins[k].length != get.pages[index[k]].length) {
      get.pages[index[k]].status = PageStatus::length_mismatch;
      continue;
    }
    found.push_back(k);
    bytes += pins[k].length;
  }
  if (found.empty()) return;
  TraceStep step(get.context.trace, "copy", found.size());
  if (get.pages[index[found[0]]].layout == nullptr)
    copy_to_region(get, pins, index, found, bytes);
  else
    copy_to_device(get, pins, index, found);
  step.done(get.pages[index[found[0]]].status, kSelfHolder);

  for (size_t k : found) {
    PageRef& page = get.pages[index[k]];
    if (page.status == PageStatus::ok) {
      get.got(index[k], source);
    } else if (page.status == PageStatus::stale) {
      // The slot was pinned, so nobody wrote to it: the memory itself is bad. Never serve it again.
      get.counters.corrupt_local.add();
      std::vector<RecordRow> rows;
      pool.remove({&get.digests[index[k]], 1}, rows);
      disk.left_pool(rows);
      page.status = PageStatus::pending;  // our disk or another holder may have it
    }
  }
}

void GetHere::copy_to_region(GetPages& get, std::span<const PinnedPage> pins,
                             std::span<const size_t> index, std::span<const size_t> found,
                             uint64_t bytes) const {
  crew.run(CopyFor::get, found.size(), bytes, [&](size_t j) {
    const PinnedPage& pin = pins[found[j]];
    PageRef& page = get.pages[index[found[j]]];
    const GatedCopy copied = copy_gated(page.memory, pin.payload(), pin.length, page.memory,
                                        *get.context.gate, get.context.deadline);
    const bool bad = copied.status == PageStatus::ok && copied.checksum != pin.checksum;
    page.status = bad ? PageStatus::stale : copied.status;
  });
}

// The processor does not see these bytes, so their checksum is not compared once more.
void GetHere::copy_to_device(GetPages& get, std::span<const PinnedPage> pins,
                             std::span<const size_t> index, std::span<const size_t> found) const {
  std::vector<DevicePage> pages;
  for (const size_t k : found) pages.push_back({&get.pages[index[k]], pins[k].payload()});
  land_device_pages(*devices, get, pages);
}

void GetHere::from_disk(GetPages& get) const {
  if (!disk.enabled()) return;
  std::vector<size_t> batch;
  uint64_t bytes = 0;
  for (size_t i = 0; i < get.pages.size() && !get.context.deadline.passed(); ++i) {
    if (get.pages[i].status != PageStatus::pending || get.pages[i].of_device) continue;
    const auto page = disk.find(get.digests[i]);
    if (!page) continue;
    if (page->length != get.pages[i].length) {
      get.pages[i].status = PageStatus::length_mismatch;
      continue;
    }
    if (bytes + page->length > promoter.batch_bytes_max()) {
      promote(get, batch);
      batch.clear();
      bytes = 0;
    }
    batch.push_back(i);
    bytes += page->length;
  }
  promote(get, batch);
}

void GetHere::promote(GetPages& get, std::span<const size_t> index) const {
  if (index.empty()) return;
  std::vector<Digest> wanted;
  uint64_t bytes = 0;
  for (const size_t i : index) {
    wanted.push_back(get.digests[i]);
    bytes += get.pages[i].length;
  }
  LoadTimes::Load load(times, {Source::disk}, bytes);
  const TimePoint now = Clock::now();
  const Deadline deadline{now + (get.context.deadline.at - now) / kDiskShare};
  TraceStep step(get.context.trace, "disk", wanted.size());
  const Promotions promotions = local.promote_now(wanted, deadline);
  copy_out(get, promotions.pages, index, Source::disk);
  note(get, index, load, now);
  for (size_t k = 0; k < index.size(); ++k) {
    if (disk_gave_nothing(promotions.statuses[k])) get.not_read(index[k]);
  }
  end(step, get, index, kSelfHolder, PageStatus::error);
}

}  // namespace peercached
