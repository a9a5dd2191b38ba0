// exists: the same places as for get, without the READ. Hits are warmed, or held, for the get that
// follows.
#pragma once

#include <span>
#include <vector>

#include "engine/control/control_queue.h"
#include "engine/control/serving.h"
#include "engine/measures/counters.h"
#include "engine/measures/latencies.h"
#include "engine/paths/recent_wishes.h"
#include "engine/records/locations.h"
#include "engine/records/locator.h"
#include "engine/records/nodes.h"
#include "engine/storage/cold_pages.h"
#include "engine/storage/local_pages.h"
#include "engine/storage/promoter.h"
#include "ipc/handler.h"
#include "pool/pool.h"
#include "transfer/transfer.h"

namespace peercached {

// The keys of one exists, and what it has learnt of them.
struct ExistsKeys {
  const RequestContext& context;
  std::span<const PageRef> keys;
  std::span<const Digest> digests;
  const bool all;

  uint32_t prefix = 0;             // keys up to the first hole
  std::vector<uint8_t> present{};  // by key
  std::vector<uint32_t> lengths{};
  std::vector<uint8_t> on_disk{};  // by key: 1 if it is on our disk only
  // Keys that are elsewhere. rows[k] is the record of the index[k]-th key, or has no holder.
  std::vector<size_t> index{};
  std::vector<RecordRow> rows{};

  void count_prefix();
  // The caller is told of keys behind the first hole only if it asked for all.
  size_t told() const { return all ? keys.size() : prefix; }
  void drop_untold();
};

struct ExistsLook {
  Pool& pool;
  const ColdPages& cold;
  const Locator& locator;
  const NodeTable& nodes;

  void look(ExistsKeys& asked) const;
  // Looks again whenever the first missing key may have come, until the prefix is as long as
  // wanted.
  void wait(ExistsKeys& asked, const Serving& serving, uint64_t epoch) const;
  void add_lengths(ExistsKeys& asked) const;

 private:
  void in_our_pool_and_disk(ExistsKeys& asked) const;
  void elsewhere(ExistsKeys& asked) const;
  static void list_missing(ExistsKeys& asked);
};

// Promotes the reported hits that are on a disk only, ours or a peer's.
struct ExistsWarm {
  Promoter& promoter;
  ControlQueue& control;
  RecentWishes& wishes;

  void warm(const ExistsKeys& asked) const;
};

struct ExistsHold {
  LocalPages& local;
  LocationCache& locations;
  const NodeTable& nodes;
  TransferEngine& transfer;

  // Only pages that are held from now on stay present.
  void hold_present(ExistsKeys& asked) const;

 private:
  // Clears present[] of pages that could not be held, here or elsewhere.
  void hold(ExistsKeys& asked) const;
};

struct ExistsPath {
  const Serving& serving;  // while it is off, nothing is here
  const ExistsLook look;
  const ExistsWarm warm;
  const ExistsHold hold;
  OperationCounters& counters;
  Latencies& latencies;

  // `all`: look up every key, not only up to the first hole.
  ExistsAnswer exists(const RequestContext& context, std::span<PageRef> keys, bool all) const;

 private:
  // Counts the keys asked for, and those found. `there`: the keys present before any were held.
  Looked looked(const ExistsKeys& asked, std::span<const uint8_t> there) const;
};

}  // namespace peercached
