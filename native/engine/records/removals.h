// Removals at this node (docs/consistency.md). The cluster's members run them through
// peercached/peer/removals; engine/paths/cluster_requests.h has a worker's side.
//
// Thread safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/types.h"
#include "engine/records/locations.h"
#include "engine/records/publisher.h"
#include "engine/storage/disk_pages.h"
#include "engine/storage/janitor.h"
#include "pool/pool.h"
#include "removals/running.h"

namespace peercached {

struct Removals {
  Running& running;
  Pool& pool;
  DiskPages& disk;
  LocationCache& locations;
  Publisher& publisher;
  Janitor& janitor;

  // When begin() returns, the pages are out of pool and disk. Nobody can set them here until end()
  // of the same digests. Appends the withdrawals of pages that were here, for the caller to send.
  enum class Begun : uint8_t {
    in_journal,
    not_in_journal,
    too_many
  };  // not_in_journal: see remove()
  Begun begin(std::span<const Digest> digests, uint64_t removal, std::vector<RecordRow>& rows);
  void end(std::span<const Digest> digests);
  // For removals that are over: drops only the pages that are here, and appends as begin() does.
  // False: the journal could not take it, so a restart may bring them back.
  bool remove(std::span<const Removed> removed, std::vector<RecordRow>& rows);
  // Drops all that is here. False: as for remove().
  bool drop_all();
  // Drops pages from our pool that were given away, not pages set later under the same keys, and
  // tells the owners. A copy on disk stays and can be found.
  void drop_moved(std::span<const RecordRow> records);

  // Hides the pages of an earlier start until show_older(). Those in the pool are dropped. Call
  // before workers are served.
  void hide_older();
  void show_older();
};

}  // namespace peercached
