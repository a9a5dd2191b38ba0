#include "transfer/rdma/handshake.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace peercached::rdma {
namespace {

constexpr size_t kChunksMax = 1 << 16;
constexpr uint8_t kMulticast = 0xff;  // first byte of an IPv6 multicast address

struct AnswerHead {
  ChannelEnd end;
  uint64_t incarnation, address, bytes, chunk_bytes;
  uint32_t rkeys;
  uint32_t reserved;
};
constexpr size_t kAnswerHeadBytes = offsetof(AnswerHead, reserved);
static_assert(kAnswerHeadBytes == 76);

[[noreturn]] void wrong(const std::string& what) {
  throw std::invalid_argument("connecting a channel: " + what);
}

void check(const ChannelEnd& end) {
  if (end.qpn == 0 || end.qpn >> 24 != 0) wrong("qpn " + std::to_string(end.qpn) + " is none");
  if (end.psn >> 24 != 0) wrong("psn " + std::to_string(end.psn) + " has more than 24 bits");
  if (end.mtu < 1 || end.mtu > 5) wrong("mtu " + std::to_string(end.mtu) + " is not 1 to 5");
  if (end.rd_atomic == 0) wrong("rd_atomic is 0: no READ could be in flight");
  if (end.link_layer != 1 && end.link_layer != 2) {
    wrong("link_layer " + std::to_string(end.link_layer) + " is neither 1 nor 2");
  }
  if (end.gid[0] == kMulticast) wrong("the gid is a multicast address");
  const bool unset =
      std::all_of(end.gid.begin(), end.gid.end(), [](auto byte) { return byte == 0; });
  if (end.link_layer == 2 && unset) wrong("the gid on Ethernet is zeros: nobody reaches it");
}

}  // namespace

ChannelEnd unpack_end(std::span<const std::byte> packed) {
  ChannelEnd end;
  if (packed.size() != sizeof end) {
    wrong(std::to_string(packed.size()) + " bytes, not " + std::to_string(sizeof end));
  }
  std::memcpy(&end, packed.data(), sizeof end);
  check(end);
  return end;
}

ChannelAnswer unpack_answer(std::span<const std::byte> packed) {
  AnswerHead head;
  if (packed.size() < kAnswerHeadBytes) {
    wrong("an answer of " + std::to_string(packed.size()) + " bytes is too short");
  }
  std::memcpy(static_cast<void*>(&head), packed.data(), kAnswerHeadBytes);
  check(head.end);
  // With smaller chunks, a slice could need more requests than a doorbell has room for.
  if (head.chunk_bytes == 0 || head.chunk_bytes % kChunkAlign != 0) {
    wrong("chunk_bytes " + std::to_string(head.chunk_bytes) + " is no multiple of " +
          std::to_string(kChunkAlign));
  }
  const uint64_t chunks = (head.bytes + head.chunk_bytes - 1) / head.chunk_bytes;
  if (head.bytes == 0 || chunks == 0 || chunks > kChunksMax || chunks != head.rkeys ||
      head.address + head.bytes < head.address) {
    wrong("a pool of " + std::to_string(head.bytes) + " bytes in chunks of " +
          std::to_string(head.chunk_bytes) + " with " + std::to_string(head.rkeys) + " keys");
  }
  if (packed.size() != kAnswerHeadBytes + chunks * sizeof(uint32_t)) {
    wrong("an answer of " + std::to_string(packed.size()) + " bytes for " + std::to_string(chunks) +
          " keys");
  }
  ChannelAnswer answer{head.end,
                       {head.incarnation, head.address, head.bytes, head.chunk_bytes, {}}};
  answer.pool.rkeys.resize(chunks);
  std::memcpy(answer.pool.rkeys.data(), packed.data() + kAnswerHeadBytes,
              chunks * sizeof(uint32_t));
  return answer;
}

std::vector<std::byte> pack(const ChannelAnswer& answer) {
  const PoolAccess& pool = answer.pool;
  const AnswerHead head{answer.end, pool.incarnation, pool.address,
                        pool.bytes, pool.chunk_bytes, static_cast<uint32_t>(pool.rkeys.size()),
                        0};
  std::vector<std::byte> packed(kAnswerHeadBytes + pool.rkeys.size() * sizeof(uint32_t));
  std::memcpy(packed.data(), &head, kAnswerHeadBytes);
  std::memcpy(packed.data() + kAnswerHeadBytes, pool.rkeys.data(),
              pool.rkeys.size() * sizeof(uint32_t));
  return packed;
}

}  // namespace peercached::rdma
