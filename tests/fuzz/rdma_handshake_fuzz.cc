// Fuzzes the parsers of the messages that make an RDMA channel: the end that a reader offers, and
// the holder's answer with the keys of its pool.
//
// The first byte chooses the parser. An accepted message must stay within the bounds that the
// channel relies on (transfer/rdma/channel.cc): every offset of the pool has a key. Packed and
// parsed again, it must not change.
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "transfer/rdma/handshake.h"

using namespace peercached;
using namespace peercached::rdma;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const ChannelEnd& end) {
  require(end.qpn != 0 && end.qpn < 1 << 24 && end.psn < 1 << 24);
  require(end.mtu >= 1 && end.mtu <= 5 && end.rd_atomic != 0);
  require(end.link_layer == 1 || end.link_layer == 2);
}

void fuzz_answer(std::span<const std::byte> packed) {
  const ChannelAnswer answer = unpack_answer(packed);
  check(answer.end);
  const PoolAccess& pool = answer.pool;
  require(pool.bytes != 0 && pool.chunk_bytes % kChunkAlign == 0);
  require(pool.address + (pool.bytes - 1) >= pool.address);
  require((pool.bytes - 1) / pool.chunk_bytes == pool.rkeys.size() - 1);
  const std::vector<std::byte> again = pack(answer);
  require(again.size() == packed.size());
  require(std::memcmp(again.data(), packed.data(), again.size()) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span packed(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  try {
    if (data[0] % 2 == 0) {
      check(unpack_end(packed));
    } else {
      fuzz_answer(packed);
    }
  } catch (const std::invalid_argument& error) {
    require(error.what()[0] != '\0');
  }
  return 0;
}
