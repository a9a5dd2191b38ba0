// What the two ends of a channel tell each other before it exists. The control plane carries
// it, through the peers' authenticated calls (docs/protocol.md, "ConnectChannel").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/types.h"
#include "transfer/rdma/ports.h"

namespace peercached::rdma {

// One end: an RC queue pair and how to reach it. 40 bytes, little-endian.
struct ChannelEnd {
  uint32_t rail = 0;  // its owner's numbering
  uint32_t qpn = 0;
  uint32_t psn = 0;  // 24 bits: of the first packet that this end sends
  uint16_t lid = 0;
  uint8_t mtu = 0;        // ibv_mtu: 1..5 = 256..4096 bytes
  uint8_t rd_atomic = 0;  // READs in flight: that the reader may have, that the holder can take
  Gid gid{};
  uint8_t link_layer = 0;  // 1 InfiniBand, 2 Ethernet
  uint8_t reserved[3] = {};
  uint32_t channel = 0;  // the reader's number of it, never used twice; the holder repeats it
};
static_assert(sizeof(ChannelEnd) == 40);

// What the size of a registered piece is a multiple of: no smaller piece is worth its key, none
// splits a slot's header or a huge page, and a slice (peer_read.cc) lies in two of them at most.
inline constexpr uint64_t kChunkAlign = 2ull << 20;

// The holder's pool as one of its rails publishes it: pieces of chunk_bytes, the last may be
// shorter, each with its rkey.
struct PoolAccess {
  Incarnation incarnation = 0;
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint64_t chunk_bytes = 0;
  std::vector<uint32_t> rkeys;
};

struct ChannelAnswer {
  ChannelEnd end;
  PoolAccess pool;
};

// Each throws std::invalid_argument naming the field that cannot be.
ChannelEnd unpack_end(std::span<const std::byte> packed);
ChannelAnswer unpack_answer(std::span<const std::byte> packed);
std::vector<std::byte> pack(const ChannelAnswer& answer);

}  // namespace peercached::rdma
