#include "engine/paths/slices.h"

#include <algorithm>
#include <vector>

namespace peercached {

namespace {

// A holder is read in slices if it has kManyBytes for us, or kSomeBytes and is not known to be
// quick. A slice is 1 / kSlices of the bytes, or kSliceBytesMin.
constexpr uint64_t kManyBytes = 32 << 20;
constexpr uint64_t kSomeBytes = 4 << 20;
constexpr uint64_t kSlices = 16;

}  // namespace

uint64_t Slices::slice(HolderIndex holder, uint64_t bytes) {
  const uint64_t share = std::max(bytes / kSlices, kSliceBytesMin);
  return bytes_of.try_emplace(holder, share).first->second;
}

uint64_t Slices::turn_bytes(HolderIndex holder, std::span<const FoundPage> found) {
  uint64_t bytes = 0;
  for (const FoundPage& one : found) bytes += one.row.length;
  const bool may_be_crowded =
      bytes >= kManyBytes || (bytes >= kSomeBytes && !speeds.quick(holder, Clock::now()));
  if (!may_be_crowded && !crowded.contains(holder)) return 0;
  const uint64_t slice_bytes = slice(holder, bytes);
  return bytes <= slice_bytes ? 0 : slice_bytes;
}

ByHolder Slices::take_behind(ByHolder& resident) {
  ByHolder behind;
  for (auto& [holder, found] : resident) {
    const uint64_t slice_bytes = turn_bytes(holder, found);
    if (slice_bytes == 0) continue;
    const auto place = [&](const FoundPage& one) { return speeds.place(one.row.digest); };
    std::ranges::sort(found, {}, place);
    size_t count = 0;
    for (uint64_t taken = 0; taken < slice_bytes; taken += found[count++].row.length) {
    }
    std::vector<FoundPage>& rest = behind[holder];
    rest.assign(found.begin() + static_cast<ptrdiff_t>(count), found.end());
    found.resize(count);
    // The rest is read in the order of the request, because the time may run out.
    std::ranges::sort(rest, {}, &FoundPage::page);
  }
  return behind;
}

}  // namespace peercached
