// One search for records of pages that are not held here, for `get` and `exists`. It asks in turn:
// the location cache, the copies of other nodes' records, our own shard, the owners in frames of
// the data channels, and the control plane. The control plane knows former owners, hedges, and
// waits for late answers.
#pragma once

#include "engine/engine.h"

namespace peercached {

// The digests that one owner is asked for, by place, ascending.
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
  std::span<PageStatus> why;  // pending: no answer yet
  Trace* trace;
  bool of_prefix;  // digests behind the first one that is nowhere need no lookup

  const TimePoint now = Clock::now();
  const uint64_t removals = engine.running_.changes();
  const std::shared_ptr<const Ring> ring = engine.directory_.ring();
  const bool alone = engine.directory_.alone();
  size_t open = digests.size();
  std::vector<uint8_t> settled = std::vector<uint8_t>(digests.size(), 0);  // 1: nowhere, and final

  void run();

  // The steps.
  void in_cache();
  void in_copies();
  void in_own_shard();
  void at_owners();
  void ask(const std::vector<OwnersPart>& parts);
  void by_control_plane();

  void take(size_t i, const RecordRow& record);
  void merge(std::vector<RecordRow>& found);
  // Marks the digests in `some` that are not found by now as nowhere.
  void settle(std::span<const size_t> some);
  bool is_open(size_t i) const;
  std::vector<size_t> open_places() const;
  size_t first_hole() const;
  bool is_decided() const;  // it is known where the prefix ends
  // Traces the first digest. A traced search has only one.
  void found_so_far(TraceStep& step) const;
};

}  // namespace peercached
