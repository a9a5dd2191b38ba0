#include "engine/storage/leaving_pages.h"

#include <algorithm>
#include <map>
#include <ranges>
#include <unordered_set>
#include <utility>

namespace peercached {

namespace {

constexpr size_t kPinnedAtOnce = 256;

}  // namespace

// Collects pages by namespace and epoch.
class LeavingPages::Parts {
 public:
  Parts(const ObjectIndex& objects, uint64_t part_bytes, bool many,
        std::span<const Digest> without = {})
      : objects_(objects),
        part_bytes_(part_bytes),
        many_(many),
        without_(without.begin(), without.end()) {}

  void add(const Digest& namespace_id, uint64_t epoch, const Digest& digest, uint32_t length) {
    if (length > kPageBytesMax || objects_.find(digest) || without_.contains(digest)) return;
    LeavingPart& part = open_[{namespace_id, epoch}];
    if (part.bytes >= part_bytes_) {
      if (!many_) return;
      closed_.push_back(std::exchange(part, {}));
    }
    part.namespace_id = namespace_id;
    part.epoch = epoch;
    part.digests.push_back(digest);
    part.bytes += length;
  }

  std::vector<LeavingPart> take() {
    for (auto& [of, part] : open_) closed_.push_back(std::move(part));
    return std::move(closed_);
  }

 private:
  const ObjectIndex& objects_;
  const uint64_t part_bytes_;
  const bool many_;
  const std::unordered_set<Digest, DigestHash> without_;
  std::map<std::pair<Digest, uint64_t>, LeavingPart> open_;
  std::vector<LeavingPart> closed_;
};

std::vector<IdlePage> LeavingPages::not_on_disk(std::vector<IdlePage> pages) const {
  if (disk.enabled())
    std::erase_if(pages, [&](const IdlePage& page) { return disk.find(page.row.digest); });
  return pages;
}

void LeavingPages::add_not_in_pool(std::span<const DiskPage> pages, Parts& parts) const {
  std::vector<Digest> digests;
  for (const DiskPage& page : pages) digests.push_back(page.digest);
  std::vector<uint32_t> in_pool(digests.size());
  pool.lengths(digests, in_pool);
  for (size_t i = 0; i < pages.size(); ++i) {
    const DiskPage& page = pages[i];
    if (in_pool[i] == 0 && disk.find(page.digest))
      parts.add(page.namespace_id, page.epoch, page.digest, page.length);
  }
}

std::vector<LeavingPart> LeavingPages::next(uint64_t bytes, uint8_t uses_min, uint64_t part_bytes,
                                            std::span<const Digest> under_way) const {
  Parts parts(objects, part_bytes, /*many=*/false, under_way);
  if (disk.enabled()) add_not_in_pool(disk.tier().leaving(uses_min), parts);
  const auto by_slot = namespaces.by_pool_slot();
  for (const IdlePage& page : not_on_disk(pool.coldest_read(bytes, uses_min))) {
    if (const auto of = by_slot.find(page.namespace_slot); of != by_slot.end())
      parts.add(of->second.id, of->second.epoch, page.row.digest, page.row.length);
  }
  return parts.take();
}

std::vector<LeavingPart> LeavingPages::at_end(uint8_t uses_min, bool disk_stays,
                                              uint64_t part_bytes) const {
  Parts parts(objects, part_bytes, /*many=*/true);
  std::vector<IdlePage> pages = pool.warmest_read(uses_min);
  if (disk_stays) pages = not_on_disk(std::move(pages));
  const auto by_slot = namespaces.by_pool_slot();
  for (const IdlePage& page : pages) {
    if (const auto of = by_slot.find(page.namespace_slot); of != by_slot.end())
      parts.add(of->second.id, of->second.epoch, page.row.digest, page.row.length);
  }
  std::vector<LeavingPart> lost = parts.take();
  if (disk_stays || !disk.enabled()) return lost;
  Parts of_disk(objects, part_bytes, /*many=*/true);
  add_not_in_pool(disk.tier().used(uses_min), of_disk);
  for (LeavingPart& part : std::views::reverse(of_disk.take())) lost.push_back(std::move(part));
  return lost;
}

ObjectPages::ObjectPages(Pool& pool, const DiskPages& disk, std::span<const Digest> digests,
                         uint64_t bytes_max, uint64_t extra_bytes, uint32_t align,
                         Deadline deadline)
    : held_(pool) {
  const auto take = [&](const Digest& digest, uint64_t checksum, uint32_t length, Born born) {
    pages_.push_back({{digest, checksum, static_cast<uint32_t>(bytes_), length}, nullptr, born});
    bytes_ = (bytes_ + length + extra_bytes + align - 1) / align * align;
  };
  while (!digests.empty()) {
    const auto some = digests.first(std::min(digests.size(), kPinnedAtOnce));
    digests = digests.subspan(some.size());
    HeldSlots here(pool);
    std::vector<PinnedPage> pins(some.size());
    pool.pin(some, nullptr, /*touch=*/false, pins);
    for (PinnedPage& pin : pins) here.take(pin);
    for (size_t i = 0; i < some.size(); ++i) {
      PinnedPage& pin = here.pages()[i];
      const auto on_disk = pin || !disk.readable() ? std::nullopt : disk.find(some[i]);
      const uint32_t length = pin ? pin.length : on_disk ? on_disk->length : 0;
      if (length == 0) continue;
      if (bytes_ + length + extra_bytes > bytes_max) {
        digests = {};
        break;
      }
      take(some[i], pin ? pin.checksum : on_disk->checksum, length,
           pin ? pin.born_of() : on_disk->born);
      if (!pin) continue;
      pages_.back().payload = pin.payload();
      held_.take(pin);
    }
  }
  read(disk, deadline);
}

void ObjectPages::read(const DiskPages& disk, Deadline deadline) {
  uint64_t bytes = 0;
  for (const Page& page : pages_) bytes += page.payload == nullptr ? page.entry.length : 0;
  if (bytes == 0) return;
  from_disk_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  std::vector<DiskRead> reads;
  std::byte* to = from_disk_.get();
  for (Page& page : pages_) {
    if (page.payload != nullptr) continue;
    DiskRead& one = reads.emplace_back();
    one.digest = page.entry.digest;
    one.length = page.entry.length;
    one.dest = to;
    page.payload = to;
    to += page.entry.length;
  }
  disk.tier().read(reads, deadline, /*urgent=*/false, /*touches=*/false);
  auto read = reads.begin();
  std::erase_if(pages_, [&](const Page& page) {
    if (read == reads.end() || read->dest != page.payload) return false;
    const DiskRead& one = *read++;
    return one.status != PageStatus::ok || one.checksum != page.entry.checksum;
  });
}

}  // namespace peercached
