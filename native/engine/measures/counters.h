// Counts of pages, keys and messages since start, by outcome. operator_view.cc shows them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "common/types.h"
#include "engine/measures/demand.h"
#include "engine/measures/latencies.h"

namespace peercached {

struct OperationCounters {
  std::array<std::atomic<uint64_t>, kStatusCount> set{}, get{};   // by status_index()
  std::array<std::atomic<uint64_t>, kSourceNames.size()> hits{};  // pages got, by Source
  std::atomic<uint64_t> stale_retries{0};
  // Pages whose bytes did not match their checksum: in our own pool, and received from a peer.
  std::atomic<uint64_t> corrupt_local{0}, corrupt_remote{0};
  std::atomic<uint64_t> set_held{0}, unpublished{0};
  Demand demand;
  std::atomic<uint64_t> lookups_asked{0}, lookup_keys_asked{0};
  // Lookup frames sent to owners. Lookups that had to ask all other owners, too.
  std::atomic<uint64_t> lookup_frames{0}, lookups_passed_on{0};
  std::atomic<uint64_t> lookups_answered{0};  // lookup frames of peers
  std::atomic<uint64_t> keys_in_copies{0};    // keys not held here that we had a record of
  // The same for records: frames to owners, and frames of peers.
  std::atomic<uint64_t> publish_frames{0}, publishes_answered{0};
  std::atomic<uint64_t> bytes_set{0}, bytes_got{0};
  std::atomic<uint64_t> used_elsewhere{0};  // pages here that peers reported as used
  // Pages taken over from draining nodes, and pages offered but not taken.
  std::atomic<uint64_t> adopted{0}, adopted_bytes{0}, adopt_refused{0};
  std::atomic<uint64_t> replicated{0}, replicated_bytes{0}, replicate_refused{0};
};

}  // namespace peercached
