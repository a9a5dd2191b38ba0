// exists: the same places as for get, without the READ. Hits are warmed, or held, for the get that
// follows.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/control/control_queue.h"
#include "engine/control/serving.h"
#include "engine/measures/counters.h"
#include "engine/measures/latencies.h"
#include "engine/measures/load_times.h"
#include "engine/paths/recent_wishes.h"
#include "engine/records/locations.h"
#include "engine/records/locator.h"
#include "engine/records/nodes.h"
#include "engine/storage/disk_pages.h"
#include "engine/storage/local_pages.h"
#include "engine/storage/object_index.h"
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
  uint32_t before = 0;             // of a question asked again: the prefix of the first look
  std::vector<uint8_t> present{};  // by key
  std::vector<uint32_t> lengths{};
  std::vector<uint8_t> on_disk{};  // by key: 1 if it is on our disk only
  // By key: the length of a page of the object store, if it is there. Empty: nobody looked.
  std::vector<uint32_t> stored{};
  std::vector<uint8_t> in_store{};  // by key: 1 if it is present there only
  // Keys that are elsewhere. rows[k] is the record of the index[k]-th key, or has no holder.
  std::vector<size_t> index{};
  std::vector<RecordRow> rows{};

  // The place of each key that is present.
  std::vector<LoadPlace> places() const;
  void count_prefix();
  // Pages that are in a pool, ours or another node's. A disk may take longer than a worker waits,
  // so only these are held.
  std::vector<uint8_t> in_pools() const;
  // Keys that a wait is for.
  size_t wanted() const { return std::min<size_t>(context.wait.keys, keys.size()); }
  // The first key that a wait still lacks: with a hold also one that is on a disk.
  size_t lacking() const;
  // The caller is told of keys behind the first hole only if it asked for all.
  size_t told() const { return all ? keys.size() : prefix; }
  void drop_untold();
};

struct ExistsLook {
  Pool& pool;
  const DiskPages& disk;
  const Locator& locator;
  const NodeTable& nodes;
  const ObjectIndex& objects;
  ControlQueue& control;

  void look(ExistsKeys& asked) const;
  // Looks again whenever the first key that it lacks may have come, until it has as many as wanted.
  // Calls `looked` after each look. Returns whether it has them.
  bool wait(ExistsKeys& asked, const Serving& serving, uint64_t epoch,
            const std::function<void()>& looked) const;
  // Waits for a moment, or for news of the first missing key.
  void pause(const ExistsKeys& asked) const;
  void add_lengths(ExistsKeys& asked) const;

 private:
  void in_our_pool_and_disk(ExistsKeys& asked) const;
  void elsewhere(ExistsKeys& asked) const;
  // Notes the missing pages that are in the object store, if the control plane vouches for it.
  // Returns whether there are any.
  bool in_store(ExistsKeys& asked) const;
  static void list_missing(ExistsKeys& asked);
};

// Promotes the reported hits that are on a disk only, ours or a peer's, and fetches those that are
// in the object store only.
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
  LoadTimes& times;
  OperationCounters& counters;
  Latencies& latencies;

  // `all`: look up every key, not only up to the first hole.
  ExistsAnswer exists(const RequestContext& context, std::span<PageRef> keys, bool all) const;

 private:
  // Returns the keys that were present before they were held, or nothing: they are not held yet.
  std::optional<std::vector<uint8_t>> wait(ExistsKeys& asked, uint64_t epoch) const;
  void add_forecast(const ExistsKeys& asked, ExistsAnswer& answer) const;
  // Counts the keys asked for, and those found. `there`: the keys present before any were held.
  Looked looked(const ExistsKeys& asked, std::span<const uint8_t> there) const;
};

}  // namespace peercached
