// This node's pages, as other nodes and the control plane ask for them: their records, and to have
// them in the pool for a while.
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
#include "engine/cold_pages.h"
#include "engine/counters.h"
#include "engine/directory.h"
#include "engine/handover.h"
#include "engine/holds.h"
#include "engine/janitor.h"
#include "engine/latencies.h"
#include "engine/namespaces.h"
#include "engine/promoter.h"
#include "pool/pool.h"

namespace peercached {

class LocalPages {
 public:
  struct Parts {
    Pool& pool;
    ColdPages& cold;
    Promoter& promoter;
    HoldTable& holds;
    const NamespaceTable& namespaces;
    Janitor& janitor;
    OperationCounters& counters;
    Latencies& latencies;
  };

  explicit LocalPages(const Parts& parts) : parts_(parts) {}

  // Records of the pages in our pool.
  std::vector<RecordRow> rows(std::span<const Digest> digests) const;
  // Records of the pages in our pool or on our disk.
  std::vector<RecordRow> records(std::span<const Digest> digests) const;
  // Our pages in the order in which a drain hands them over. Each part is of one namespace.
  Handovers handovers(uint64_t bytes_max) const;
  // The pages that are evicted while `bytes` more are set, and may be spilled.
  Handovers coldest(uint64_t bytes) const;

  // held[i] = 1: the page stays here for `hold_ms` (holds.h).
  void hold(std::span<const Digest> digests, uint32_t hold_ms, std::span<uint8_t> held);
  // Pins pages for `pin_ms` (holds.h). Returns why some were refused, or "".
  std::string pin(std::span<const Digest> digests, uint32_t pin_ms, uint64_t bytes_max,
                  std::span<PageStatus> statuses);
  // Those of these pages that are in our pool, as parts for another node that an operator named.
  // They count as used now, so that it takes them.
  Handovers parts_of(std::span<const Digest> digests) const;
  // Reads pages from disk if need be, for a caller that waits, here or at a peer.
  Promotions promote_now(std::span<const Digest> digests, Deadline deadline);
  // The same for a peer. Returns records of pages in our pool now, withdrawals of those not here,
  // and rows without flags where the disk failed. No row: not now.
  std::vector<RecordRow> promote(std::span<const Digest> digests, Deadline deadline);
  // For a peer that has used these pages or is about to. They count as used now. Those on disk only
  // are promoted when there is time.
  void warm(std::span<const Digest> digests);

 private:
  Handovers in_parts(std::span<const IdlePage> pages) const;

  const Parts parts_;
};

}  // namespace peercached
