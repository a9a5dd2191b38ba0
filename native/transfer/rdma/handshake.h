// Messages that the two ends exchange to make a channel. The control plane carries them in the
// peers' authenticated calls (docs/protocol.md, "ConnectChannel").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/types.h"
#include "transfer/rdma/ports.h"

namespace peercached::rdma {

// One end: an RC queue pair and its address. 40 bytes, little-endian.
struct ChannelEnd {
  uint32_t rail = 0;  // numbered by the node of this end
  uint32_t qpn = 0;
  uint32_t psn = 0;  // 24 bits: of the first packet that this end sends
  uint16_t lid = 0;
  uint8_t mtu = 0;        // ibv_mtu: 1..5 = 256..4096 bytes
  uint8_t rd_atomic = 0;  // READs in flight: issued by the reader, accepted by the holder
  Gid gid{};
  uint8_t link_layer = 0;  // 1 InfiniBand, 2 Ethernet
  uint8_t reserved[3] = {};
  uint32_t channel = 0;  // numbered by the reader, never reused; the holder repeats it
};
static_assert(sizeof(ChannelEnd) == 40);

// Chunk sizes are multiples of this. Smaller chunks are not worth their keys. The alignment keeps
// slot headers and huge pages in one chunk, and a slice (peer_read.cc) in at most two.
inline constexpr uint64_t kChunkAlign = 2ull << 20;

// The holder's pool as one of its rails publishes it: chunks of chunk_bytes (the last may be
// shorter), each with its rkey. A chunk of 0 is not registered yet, because the pool grows.
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

// The unpack functions throw std::invalid_argument naming the invalid field.
ChannelEnd unpack_end(std::span<const std::byte> packed);
ChannelAnswer unpack_answer(std::span<const std::byte> packed);
std::vector<std::byte> pack(const ChannelAnswer& answer);

}  // namespace peercached::rdma
