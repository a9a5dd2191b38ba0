// Which nodes own a digest: consistent hashing over 64-bit positions.
//
// The positions are a pure function of the view, computed by the control plane
// (peercached/directory/ring.py, golden vectors in the tests); this is the immutable table
// they are looked up in. A digest's place is its `lo` word; its owners are the first
// `replicas` distinct nodes clockwise from there, in that order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/types.h"

namespace peercached {

inline constexpr unsigned kOwnersMax = 8;

class Ring {
 public:
  // `positions` ascending; nodes[i] is the holder index at positions[i].
  Ring(std::vector<uint64_t> positions, std::vector<HolderIndex> nodes, unsigned replicas);

  // Writes the owners in ring order, returns how many (fewer than replicas in a small view).
  unsigned owners(const Digest& digest, HolderIndex out[kOwnersMax]) const;
  bool owned_by(const Digest& digest, HolderIndex node) const;

  // Splits packed items that each begin with a Digest into one buffer per owner, keeping
  // their order; an item goes to each of its owners (or to the first only).
  struct Part { HolderIndex owner; std::vector<std::byte> items; };
  std::vector<Part> split(std::span<const std::byte> items, size_t stride, bool first_only) const;

  unsigned replicas() const;
  std::vector<std::pair<HolderIndex, double>> shares() const;  // fraction owned first, per node

 private:
  std::vector<uint64_t> positions_;
  std::vector<HolderIndex> nodes_;
  unsigned replicas_ = 1;
  // plus whatever makes owners() fast
};

}  // namespace peercached
