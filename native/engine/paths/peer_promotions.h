// Has pages promoted that are on peers' disks only: we ask the holder, and it answers with the new
// records.
//
// A holder is asked for a few megabytes at a time, and for the next ones before those are read. So
// its disk and the network work at the same time, and it need not keep much in its pool for one
// reader.
#pragma once

#include <memory>
#include <vector>

#include "engine/control/control_queue.h"
#include "engine/paths/get_pages.h"
#include "removals/running.h"

namespace peercached {

class PeerPromotions {
 public:
  // Asks each holder for the first of these pages.
  PeerPromotions(ControlQueue& control, const Running& running, GetPages& get, ByHolder& disk)
      : control_(control), running_(running), get_(get), disk_(disk) {
    ask();
  }

  bool any() const { return !asked_.empty(); }
  // Waits for the answers, and asks for the next pages. Returns those that are in their holders'
  // pools now.
  ByHolder next();

 private:
  // One holder, asked for some pages.
  struct Asked {
    const HolderIndex holder;
    const std::vector<FoundPage> pages;
    const uint64_t removals;  // Running::changes() before it was asked
    ControlQueue::Question question;
  };
  void ask();
  // Pages that cannot be promoted now are on the disk only, as before. If none could, they are
  // misses, because more questions would not help.
  void take_answer(Asked& asked, ByHolder& promoted);

  ControlQueue& control_;
  const Running& running_;
  GetPages& get_;
  ByHolder& disk_;
  std::vector<std::unique_ptr<Asked>> asked_;
};

}  // namespace peercached
