// The last places of a get: the peers. The first lookup uses all that is known of the pages. A
// second one may follow (get_path.h).
//
// Holders do not wait for each other (docs/data-path.md). A holder that gives its pages in several
// steps has a thread of its own, if other holders give pages, too.
#pragma once

#include "engine/paths/get_here.h"
#include "engine/paths/get_pages.h"
#include "engine/paths/turns.h"

namespace peercached {

struct GetPeers {
  const GetHere here;
  const PeerSources peers;

  void from_peers(GetPages& get) const;

 private:
  struct Attempts;  // the lookups, and the reads that follow each
  struct Apart;     // the same for the pages of one holder, on a thread of its own
};

}  // namespace peercached
