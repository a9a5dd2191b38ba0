// Counts of pages, keys and messages since start, by outcome. operator_view.cc shows them.
#pragma once

#include <array>
#include <cstdint>

#include "common/counter.h"
#include "common/types.h"
#include "engine/measures/demand.h"
#include "engine/measures/latencies.h"
#include "ipc/handler.h"

namespace peercached {

// Sums of ForecastNews.
struct LoadsJudged {
  Counter cut_pages, given_up_pages, cut_us, computed_us;

  void add(const ipc::ForecastNews& news) {
    cut_pages.add(news.cut_pages);
    given_up_pages.add(news.given_up_pages);
    cut_us.add(news.cut_us);
    computed_us.add(news.computed_us);
  }
};

struct OperationCounters {
  std::array<Counter, kStatusCount> set, get;     // by status_index()
  std::array<Counter, kSourceNames.size()> hits;  // pages got, by Source
  Counter stale_retries;
  // Pages with a wrong checksum: in our own pool, and received from a peer.
  Counter corrupt_local, corrupt_remote;
  Counter set_held, unpublished;
  Demand demand;
  Counter lookups_asked, lookup_keys_asked;
  // Lookup frames sent to owners. Lookups that had to ask all other owners, too.
  Counter lookup_frames, lookups_passed_on;
  Counter lookups_answered;  // lookup frames of peers
  Counter keys_in_copies;    // keys not here that we had a record of
  // The same for records: frames to owners, and frames of peers.
  Counter publish_frames, publishes_answered;
  Counter bytes_set, bytes_got;
  LoadsJudged loads_judged;
  Counter used_elsewhere;  // pages here that peers reported as used
  // Pages taken over from draining nodes, and pages offered but not taken.
  Counter adopted, adopted_bytes, adopt_refused;
  Counter replicated, replicated_bytes, replicate_refused;
  Counter from_store, from_store_bytes;  // pages that came from the object store into the pool
};

}  // namespace peercached
