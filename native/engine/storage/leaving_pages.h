// Pages that are about to leave this node's memory and disk, for the object store: which ones, and
// their bytes (docs/cold-tier.md).
//
// Thread safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/clock.h"
#include "common/types.h"
#include "engine/storage/disk_pages.h"
#include "engine/storage/namespaces.h"
#include "engine/storage/object_index.h"
#include "pool/held_slots.h"
#include "pool/pool.h"

namespace peercached {

// Pages of one namespace and epoch, in the order of their chains.
struct LeavingPart {
  Digest namespace_id;
  uint64_t epoch = 0;
  std::vector<Digest> digests;
  uint64_t bytes = 0;
};

struct LeavingPages {
  const Pool& pool;
  const DiskPages& disk;
  const NamespaceTable& namespaces;
  const ObjectIndex& objects;  // its pages are in the store, so they are left out

  // Larger pages are not written.
  static constexpr uint32_t kPageBytesMax = 16 << 20;

  // Pages with so many uses that leave next: those that the disk evicts, and those that the pool
  // evicts while `bytes` more are set and that are not on the disk. One part for each namespace, of
  // at most `part_bytes`. `under_way`: they are being written.
  std::vector<LeavingPart> next(uint64_t bytes, uint8_t uses_min, uint64_t part_bytes,
                                std::span<const Digest> under_way = {}) const;
  // Pages with so many uses that are lost when this process ends: those of the pool, the most
  // recently used first, and then those of the disk, the newest parts first. `disk_stays`: pages on
  // the disk are not lost. Many parts of about `part_bytes`.
  std::vector<LeavingPart> at_end(uint8_t uses_min, bool disk_stays, uint64_t part_bytes) const;

 private:
  class Parts;
  std::vector<IdlePage> not_on_disk(std::vector<IdlePage> pages) const;
  void add_not_in_pool(std::span<const DiskPage> pages, Parts& parts) const;
};

// Pages in memory until the end of this object: pinned in the pool, or read from the disk. Their
// checksums are verified by whoever copies them from here.
class ObjectPages {
 public:
  struct Page {
    ObjectEntry entry;  // with the place in an object of these pages
    const std::byte* payload = nullptr;
    Born born = 0;
  };

  // The first of these pages, up to `bytes_max` with `extra_bytes` behind each and their padding to
  // `align` bytes. Pages that are not here any more are left out.
  ObjectPages(Pool& pool, const DiskPages& disk, std::span<const Digest> digests,
              uint64_t bytes_max, uint64_t extra_bytes, uint32_t align, Deadline deadline);

  std::span<const Page> pages() const { return pages_; }
  uint64_t bytes() const { return bytes_; }  // of all payloads, with padding

 private:
  void read(const DiskPages& disk, Deadline deadline);

  HeldSlots held_;
  std::vector<Page> pages_;
  uint64_t bytes_ = 0;
  std::unique_ptr<std::byte[]> from_disk_;
};

}  // namespace peercached
