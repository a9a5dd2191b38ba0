// Hints about this node's pages. Each call names the namespace of its pages, in its
// current epoch; a page of another namespace counts as absent.
//
// Thread safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "common/types.h"
#include "engine/storage/disk_pages.h"
#include "engine/storage/janitor.h"
#include "engine/storage/namespaces.h"
#include "engine/storage/retains.h"
#include "pool/pool.h"

namespace peercached {

struct HintedPages {
  Pool& pool;
  DiskPages& disk;
  NamespaceTable& namespaces;
  RetainTable& retains;
  Janitor& janitor;

  // Pages that a hint has just brought into the pool (Pool::set_hinted).
  void brought(const Digest& namespace_id, uint64_t epoch, std::span<const Digest> digests);
  // The bytes of the namespace's pages that hints brought and nobody has used yet.
  uint64_t unused_bytes(const Digest& namespace_id, uint64_t epoch);
  // See RetainTable::retain().
  std::string retain(const Digest& namespace_id, uint64_t epoch, std::span<const Digest> digests,
                     uint32_t for_ms, uint64_t bytes_max, uint64_t namespace_bytes_max,
                     std::span<PageStatus> statuses);
  // They are the first to go. Statuses: ok or absent.
  void first_to_go(const Digest& namespace_id, uint64_t epoch, std::span<const Digest> digests,
                   std::span<PageStatus> statuses);
  // Gives up their memory, once they are on the disk. Statuses: ok (on the disk only, or pinned),
  // pending (being written; ask again without `write`), absent.
  void to_disk(const Digest& namespace_id, uint64_t epoch, std::span<const Digest> digests,
               bool write, std::span<PageStatus> statuses);
};

}  // namespace peercached
