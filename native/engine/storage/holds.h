// Pages kept in the pool for a while because a caller was promised them: holds and pins.
//
//   hold  at most 30 s, asked for by `exists`; the caller reads the pages soon
//   pin   at most an hour, asked for by an operator or a worker that comes back later
//
// Each kind is bounded in pages and bytes, so that promises never starve eviction. A pin is bounded
// by namespace as well: by half of what all pins may have, and by half of the namespace's quota.
// Beyond a bound nothing more is kept, and the caller is told.
//
// A pool has one table, and a page has one entry for all callers. It counts as pinned until its pin
// ends, and as held from then on if a hold is left. A removed page leaves the table with the next
// call.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "pool/pool.h"

namespace peercached {

struct PinnedUse {
  uint64_t pages = 0, bytes = 0;
};

struct HoldStats {
  uint64_t pages = 0, bytes = 0, refused = 0;
  PinnedUse pinned;
  uint64_t pins_refused = 0;  // pages
};

struct PinRow {
  Digest digest;
  uint32_t length = 0;
  uint32_t namespace_slot = 0;
  TimePoint until;
};

class HoldTable {
 public:
  HoldTable(Pool& pool, size_t pages_max, uint64_t bytes_max);
  ~HoldTable();

  // held[i] = 1: digests[i] is committed here and stays until `until`, unless it is removed. A page
  // that is held already keeps the later of both times.
  void hold(std::span<const Digest> digests, TimePoint until, std::span<uint8_t> held);
  // Pins pages until `until`; replaces the time of a page that is pinned already. `bytes_max`: of
  // all pinned pages. After the first page that is refused no further one is pinned, because a
  // page is worth nothing without those before it. Statuses: ok, absent, or no_space if refused.
  // Returns why, with value and limit, or "".
  std::string pin(std::span<const Digest> digests, TimePoint until, uint64_t bytes_max,
                  std::span<PageStatus> statuses);
  // Statuses: ok, or absent if it was not pinned. A page stays while it is held.
  void unpin(std::span<const Digest> digests, std::span<PageStatus> statuses);
  // Releases the pages that are due. Returns when the next is due, or TimePoint::max().
  TimePoint expire(TimePoint now);
  HoldStats stats();
  // The pinned pages, those that end first in front, at most `limit` of them. `namespace_slot` 0:
  // of all namespaces.
  std::vector<PinRow> pins(size_t limit, uint32_t namespace_slot = 0);
  // By namespace slot.
  std::map<uint32_t, PinnedUse> pinned_by_namespace();

 private:
  struct Held {
    KeptPage page;
    TimePoint held_until{};    // in the past: not held
    TimePoint pinned_until{};  // TimePoint{}: not pinned
    bool pinned() const { return pinned_until != TimePoint{}; }
    TimePoint due() const { return pinned() ? pinned_until : held_until; }
  };
  using Table = std::unordered_map<Digest, Held, DigestHash>;

  // All need mutex_.
  void forget_ended();
  void keep(std::span<const Digest> digests, std::vector<KeptPage>& pages, bool unless_leaving);
  void count(const Held& entry, bool comes);
  // Changes an entry, or makes one, and counts it anew.
  void put(Digest digest, const Held& entry);
  void erase(Table::iterator entry);
  // Ends the pin. The page stays while it is held; otherwise its entry ends, too, and the page
  // comes to `released`.
  void end_pin(Table::iterator entry, TimePoint now, std::vector<KeptPage>& released);
  // "" if `page` may be pinned.
  std::string why_no_pin(const KeptPage& page, uint64_t bytes_max) const;

  Pool& pool_;
  const size_t pages_max_;
  const uint64_t bytes_max_;
  std::mutex mutex_;  // lock order: before the pool's
  Table held_;
  std::set<std::pair<TimePoint, Digest>> due_;  // one for each entry, at its due()
  PinnedUse held_use_, pinned_use_;
  std::map<uint32_t, PinnedUse> pinned_by_namespace_;
  uint64_t refused_ = 0, pins_refused_ = 0;
};

}  // namespace peercached
