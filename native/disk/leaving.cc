#include "disk/leaving.h"

#include <algorithm>
#include <functional>
#include <set>

namespace peercached::disk {

namespace {

// It looks at 1/kAheadShare of the segments, and at most at kAheadMax: each look walks their pages.
constexpr size_t kAheadShare = 16, kAheadMax = 4;

}  // namespace

uint64_t carry_bytes_max(const LogConfig& config, double carry) {
  return static_cast<uint64_t>(carry * static_cast<double>(config.segment_bytes));
}

size_t carried_first(std::vector<IndexedPage>& used, uint64_t carry_bytes_max) {
  std::ranges::sort(used, std::greater(), [](const auto& one) { return one.entry.touched; });
  uint64_t bytes = 0;
  size_t carried = 0;
  while (carried < used.size() &&
         bytes + record_bytes(used[carried].entry.length) <= carry_bytes_max) {
    bytes += record_bytes(used[carried++].entry.length);
  }
  return carried;
}

std::vector<uint32_t> Leaving::oldest() const {
  const auto all = segments_.all();
  const size_t ahead = std::clamp<size_t>(all.size() / kAheadShare, 1, kAheadMax);
  std::vector<uint32_t> numbers;
  // Two of them are always free, see Log::needs_room().
  if (log_.has_room(2 + ahead)) return numbers;
  for (const auto& segment : all) {
    if (numbers.size() == ahead || !segment->sealed.load(std::memory_order_acquire)) break;
    numbers.push_back(segment->number);
  }
  return numbers;
}

void Leaving::list(const std::vector<uint32_t>& segments) {
  std::erase_if(listed_, [&](const auto& one) {
    return std::ranges::find(segments, one.first) == segments.end();
  });
  std::map<uint32_t, std::vector<Listed>> found;
  for (const uint32_t number : segments) {
    if (!listed_.contains(number)) found[number];
  }
  if (found.empty()) return;
  index_.scan([&](const IndexEntry& entry) {
    if (const auto of = found.find(entry.segment); of != found.end())
      of->second.push_back({entry.sequence, entry.digest});
    return Index::Verdict::keep;
  });
  for (auto& [number, pages] : found) std::ranges::sort(pages, {}, &Listed::sequence);
  listed_.merge(found);
}

std::vector<DiskPage> Leaving::pages(uint8_t uses_min) {
  std::vector<DiskPage> leaving;
  MutexLock lock(mutex_);
  list(oldest());
  for (const auto& [number, listed] : listed_) {
    std::vector<IndexedPage> touched, all;
    for (const Listed& one : listed) {
      const auto found = index_.find(one.digest);
      if (!found || found->entry.segment != number) continue;
      if (found->entry.touched != 0) touched.push_back(*found);
      if (found->entry.uses >= uses_min) all.push_back(*found);
    }
    touched.resize(carried_first(touched, carry_bytes_max_));
    std::set<uint64_t> carried;
    for (const IndexedPage& one : touched) carried.insert(one.entry.sequence);
    for (const IndexedPage& one : all)
      if (!carried.contains(one.entry.sequence)) leaving.push_back(one.page);
  }
  return leaving;
}

std::vector<DiskPage> Leaving::all(uint8_t uses_min) {
  std::vector<Listed> listed;
  index_.scan([&](const IndexEntry& entry) {
    if (entry.on_disk() && entry.uses >= uses_min) listed.push_back({entry.sequence, entry.digest});
    return Index::Verdict::keep;
  });
  std::ranges::sort(listed, {}, &Listed::sequence);
  std::vector<DiskPage> pages;
  for (const Listed& one : listed) {
    if (const auto found = index_.find(one.digest); found && found->entry.sequence == one.sequence)
      pages.push_back(found->page);
  }
  return pages;
}

}  // namespace peercached::disk
