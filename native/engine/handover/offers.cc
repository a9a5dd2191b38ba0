#include "engine/handover/offers.h"

#include <algorithm>
#include <map>
#include <utility>

namespace peercached {

Handovers Offers::warmest(uint64_t bytes_max) const { return in_parts(pool.warmest(bytes_max)); }

Handovers Offers::coldest(uint64_t bytes) const {
  Handovers found = in_parts(pool.coldest(bytes, kSpillMovesMax));
  for (Handover& part : found.parts) part.spilled = true;
  return found;
}

Handovers Offers::of(std::span<const Digest> digests) const {
  Handovers found = in_parts(pool.idle_pages(digests));
  for (Handover& part : found.parts) part.idle_ms = part.moves = 0;
  return found;
}

Handovers Offers::in_parts(std::span<const IdlePage> pages) const {
  const auto by_slot = namespaces.by_pool_slot();
  Handovers found;
  std::map<std::pair<uint32_t, uint8_t>, OpenPart> open;  // by pool slot and moves
  for (const IdlePage& page : pages) {
    const auto ns = by_slot.find(page.namespace_slot);
    if (ns == by_slot.end()) continue;
    if (page.row.length > kHandoverPageBytesMax) {
      ++found.too_large;
      continue;
    }
    OpenPart& into = open[{page.namespace_slot, page.moves}];
    if (!into.has_room(page.row)) found.parts.push_back(into.close());
    into.part.namespace_id = ns->second.id;
    into.part.epoch = ns->second.epoch;
    into.part.moves = page.moves;
    into.part.idle_ms = std::max(into.part.idle_ms, page.idle_ms);
    into.add(page.row);
  }
  for (auto& [slot, last] : open) found.parts.push_back(last.close());
  return found;
}

}  // namespace peercached
