// A chain: pieces of pages that one channel reads with one doorbell, and verifies with another.
//
//   READ  header + payload of page 1     -> scratch, region
//   READ  payload of page 2 (a slice)    -> region          signalled: all of it has landed
//   then
//   READ  header of page 1               -> scratch
//   READ  header of page 2               -> scratch         signalled
//
// So each header is read again after its payload has landed. Each slice carries its own proof,
// because a generation names one use of a slot. If the slot had the wanted generation during the
// reads of all slices, the page is whole, whichever rails they used. A channel has several chains:
// the payload of the next one is in flight while the headers of this one are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transfer/transfer.h"

namespace peercached::rdma {

inline constexpr size_t kChainSlicesMax = 32;
inline constexpr uint64_t kChainBytes = 2ull << 20;
inline constexpr size_t kChainsPerChannel = 3;  // one lands, one is verified, one is harvested
inline constexpr unsigned kPiecesMax = 3;       // scratch, and one or two chunks of a region

struct Slice {
  uint32_t op = 0;       // index in the batch
  uint32_t at = 0;       // first payload byte
  uint32_t bytes = 0;    // of payload
  uint8_t attempts = 0;  // failed ones
  bool leads() const { return at == 0; }
};

}  // namespace peercached::rdma
