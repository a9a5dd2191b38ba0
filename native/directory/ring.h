// Finds the owners of a digest: consistent hashing over 64-bit positions.
//
// The control plane computes the positions from the view alone (peercached/directory/ring.py,
// golden vectors in the tests). This is the immutable lookup table. A digest's place is its `lo`
// word. Its owners are the first `replicas` distinct nodes at or clockwise after that place, in
// that order.
//
// Thread safe: nothing changes after construction.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "common/types.h"

namespace peercached {

inline constexpr unsigned kOwnersMax = 8;

class Ring {
 public:
  // `positions` must ascend; nodes[i] is the holder index at positions[i]; 1 <= replicas <=
  // kOwnersMax. Throws std::invalid_argument otherwise. No positions: nobody owns anything.
  Ring(std::vector<uint64_t> positions, std::vector<HolderIndex> nodes, unsigned replicas,
       uint64_t view_number = 0);

  // Writes the owners in ring order, returns how many (fewer than replicas in a small view).
  unsigned owners(const Digest& digest, HolderIndex out[kOwnersMax]) const;
  bool owned_by(const Digest& digest, HolderIndex node) const;

  // The same number for the same ring on every node. `identity` of a holder index.
  uint64_t print(const std::function<uint64_t(HolderIndex)>& identity) const;
  uint64_t view_number() const { return view_number_; }  // of the view that produced this ring
  // Per node, the fraction of digests that have it among their first `owners` owners. `owners` is
  // capped at the number of owners per digest.
  std::vector<std::pair<HolderIndex, double>> shares(unsigned owners = 1) const;

 private:
  const HolderIndex* owners_at(uint64_t place) const;

  std::vector<uint64_t> positions_;
  std::vector<HolderIndex> nodes_;
  HolderIndex node_last_ = 0;  // the highest index in nodes_
  unsigned replicas_ = 1;
  uint64_t view_number_ = 0;
  unsigned owners_per_place_ = 0;  // min(replicas, nodes in the view)

  // owners_: owners_per_place_ owners for each position. jump_: for each value of a place's first
  // 64 - jump_shift_ bits, the first position at or after it. So a lookup costs two or three cache
  // misses, whatever the number of nodes.
  std::vector<HolderIndex> owners_;
  std::vector<uint32_t> jump_;
  unsigned jump_shift_ = 63;
};

}  // namespace peercached
