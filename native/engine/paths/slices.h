// The holders that one get reads in slices, because many nodes read from them at this moment, it
// seems (docs/page-placement.md).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>

#include "engine/paths/get_pages.h"
#include "engine/records/holder_speeds.h"

namespace peercached {

// Reads of fewer bytes do not show whether a holder is crowded.
inline constexpr uint64_t kSliceBytesMin = 512 << 10;

struct Slices {
  const HolderSpeeds& speeds;
  std::set<HolderIndex> crowded{};
  std::map<HolderIndex, uint64_t> bytes_of{};  // one slice, of the holders that are read in slices

  // How much is read from this holder in one turn, if there is so much of it.
  uint64_t slice(HolderIndex holder, uint64_t bytes);
  // The same. 0: all of it is read at once.
  uint64_t turn_bytes(HolderIndex holder, std::span<const FoundPage> found);
  // Takes out of `resident` what is behind the first slice of each holder.
  ByHolder take_behind(ByHolder& resident);
};

}  // namespace peercached
