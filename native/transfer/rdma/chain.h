// A chain: pieces of pages that one channel reads with one doorbell, and proves with another.
//
//   READ  header + payload of page 1     -> scratch, region
//   READ  payload of page 2 (a slice)    -> region          signalled: all of it has landed
//   and then
//   READ  header of page 1               -> scratch
//   READ  header of page 2               -> scratch         signalled
//
// So every header is seen again after its payload has landed. A slice carries its own proof: a
// generation names one use of a slot, so a page whose slices were all read while the slot had
// the wanted generation is whole, whichever rails they came by. While the headers of one chain
// are on their way the payload of the next is, too: a channel has several chains.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transfer/transfer.h"

namespace peercached::rdma {

inline constexpr size_t kChainSlicesMax = 32;
inline constexpr uint64_t kChainBytes = 2ull << 20;
inline constexpr size_t kChainsPerChannel = 3;  // one lands, one is proved, one is looked at
inline constexpr unsigned kPiecesMax = 3;       // scratch, and a region's chunk or two

struct Slice {
  uint32_t op = 0;       // index in the batch
  uint32_t at = 0;       // first payload byte
  uint32_t bytes = 0;    // of payload
  uint8_t attempts = 0;  // that failed
  bool leads() const { return at == 0; }
};

}  // namespace peercached::rdma
