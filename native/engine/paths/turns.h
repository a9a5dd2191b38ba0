// Reads found pages of peers. Pages in their pools are READ, pages on their disks only are promoted
// first.
//
// Many pages of one holder are read in turns. The first one is a slice of them. If it comes as
// quickly as usual, the rest follows at once. If not, many nodes read from that holder at this
// moment, and perhaps the same pages. So we keep the pages that have come, for the others. We look
// the rest up again, because the others do the same. Each reader begins elsewhere
// (docs/page-placement.md).
#pragma once

#include <vector>

#include "engine/control/control_queue.h"
#include "engine/paths/get_pages.h"
#include "engine/paths/peer_reads.h"
#include "engine/paths/slices.h"
#include "engine/records/locator.h"
#include "removals/running.h"

namespace peercached {

struct PeerSources {
  const Locator& locator;
  ControlQueue& control;
  const Running& running;
  const PeerReads reads;
};

struct Turns {
  const PeerSources& peers;
  GetPages& get;
  Slices slices{peers.reads.speeds};
  GetLoads loads{peers.reads.times};

  // Puts a page with its record where it belongs, or decides that it is missed.
  void sort_in(const FoundPage& found, FoundPages& into);
  // In as many turns as it takes.
  void read(FoundPages& found);

 private:
  // One turn. Returns the pages that are left for further ones.
  std::vector<FoundPage> turn(FoundPages& found);
  FoundPages look_up_anew(std::span<const FoundPage> left);
  void promote_and_read(FoundPages& found);
};

}  // namespace peercached
