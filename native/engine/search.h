// One search for records of pages that are not held here, for `get` and `exists`: in the location
// cache, in the copies of other nodes' records, in our own shard, at the owners in frames of the
// data channels, and through the control plane, which knows of former owners, hedges, and waits for
// those that are late.
#pragma once

#include "engine/engine.h"

namespace peercached {

// Digests, by place, ascending, that one owner is asked for.
struct OwnersPart {
  HolderIndex owner;
  std::vector<size_t> places;
};

struct Engine::Search {
  Engine& engine;
  std::span<const Digest> digests;
  std::span<const HolderIndex> failed;  // may be empty
  Trust trust;
  Deadline deadline;
  std::span<RecordRow> rows;  // holder == kNoHolder: none yet
  std::span<PageStatus> why;  // pending: nobody has said anything yet
  Trace* trace;
  bool of_prefix;  // what lies behind the first digest that is nowhere need not be found

  const TimePoint now = Clock::now();
  const uint64_t removals = engine.running_.changes();
  const std::shared_ptr<const Ring> ring = engine.ring();
  const bool alone = engine.alone_.load(std::memory_order_acquire);
  size_t open = digests.size();
  std::vector<uint8_t> settled = std::vector<uint8_t>(digests.size(), 0);  // found nowhere, finally

  void run();

  // Its steps.
  void in_cache();
  void in_copies();
  void in_own_shard();
  void at_owners();
  void ask(const std::vector<OwnersPart>& parts);
  void by_control_plane();

  void take(size_t i, const RecordRow& record);
  void merge(std::vector<RecordRow>& found);
  // Of those, what is found nowhere by now is nowhere.
  void settle(std::span<const size_t> some);
  bool is_open(size_t i) const;
  std::vector<size_t> open_places() const;
  size_t first_hole() const;
  bool is_decided() const;  // where the prefix ends
  // Of the first digest, which is the only one where there is a trace.
  void found_so_far(TraceStep& step) const;
};

}  // namespace peercached
