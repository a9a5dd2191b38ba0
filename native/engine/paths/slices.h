// The holders that one get reads in slices, because many nodes seem to read from them now
// (docs/page-placement.md).
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

  // The bytes to read from this holder in one turn, if it has `bytes` for us.
  uint64_t slice(HolderIndex holder, uint64_t bytes);
  // The same for these pages. 0: read all of them at once.
  uint64_t turn_bytes(HolderIndex holder, std::span<const FoundPage> found);
  // Takes the pages behind the first slice of each holder out of `resident`.
  ByHolder take_behind(ByHolder& resident);
};

}  // namespace peercached
