// This node's pages for other nodes and the control plane. Gives them records, and keeps pages in
// the pool for a while.
//
// Thread safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/types.h"
#include "engine/measures/counters.h"
#include "engine/measures/latencies.h"
#include "engine/storage/disk_pages.h"
#include "engine/storage/holds.h"
#include "engine/storage/janitor.h"
#include "engine/storage/promoter.h"
#include "pool/pool.h"

namespace peercached {

struct LocalPages {
  Pool& pool;
  DiskPages& disk;
  Promoter& promoter;
  HoldTable& holds;
  Janitor& janitor;
  OperationCounters& counters;
  Latencies& latencies;

  // Records of the pages in our pool.
  std::vector<RecordRow> rows(std::span<const Digest> digests) const;
  // Records of the pages in our pool or on our disk.
  std::vector<RecordRow> records(std::span<const Digest> digests) const;

  // held[i] = 1: the page stays here for `hold_ms` (holds.h).
  void hold(std::span<const Digest> digests, uint32_t hold_ms, std::span<uint8_t> held);
  // Pins pages for `pin_ms` (holds.h). Returns why some were refused, or "".
  std::string pin(std::span<const Digest> digests, uint32_t pin_ms, uint64_t bytes_max,
                  std::span<PageStatus> statuses);
  // Reads pages from disk if need be, for a caller that waits, here or at a peer.
  Promotions promote_now(std::span<const Digest> digests, Deadline deadline);
  // The same for a peer. Returns records of pages in our pool now, withdrawals of those not here,
  // and rows without flags where the disk failed. No row: not now.
  std::vector<RecordRow> promote(std::span<const Digest> digests, Deadline deadline);
  // For a peer that has used these pages or is about to. They count as used now. Those on disk only
  // are promoted when there is time.
  void warm(std::span<const Digest> digests);
};

}  // namespace peercached
