// Handshakes of an RDMA channel: which answers are accepted, and why others are refused.
#include "transfer/rdma/handshake.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "says.h"

namespace peercached::rdma {
namespace {

constexpr uint64_t kMiB = 1 << 20;

ChannelAnswer answer() {
  ChannelAnswer made;
  made.end.rail = 1;
  made.end.qpn = 0x123456;
  made.end.psn = 0xabcdef;
  made.end.mtu = 5;
  made.end.rd_atomic = 16;
  made.end.gid[15] = 9;
  made.end.link_layer = 2;
  made.end.channel = 0xfffffffe;
  made.pool = {99, 0x7f0000000000, 5 * kMiB, 2 * kMiB, {11, 12, 13}};
  return made;
}

// Returns why a changed answer is refused, or "" if it is accepted.
std::string refusal(const std::function<void(ChannelAnswer&)>& change) {
  ChannelAnswer changed = answer();
  change(changed);
  try {
    unpack_answer(pack(changed));
    return "";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

TEST(Handshake, AnAnswerArrivesAsItWasPacked) {
  const ChannelAnswer sent = answer();
  const ChannelAnswer got = unpack_answer(pack(sent));
  EXPECT_EQ(std::memcmp(&got.end, &sent.end, sizeof sent.end), 0);
  EXPECT_EQ(got.pool.incarnation, 99u);
  EXPECT_EQ(got.pool.address, sent.pool.address);
  EXPECT_EQ(got.pool.bytes, sent.pool.bytes);
  EXPECT_EQ(got.pool.chunk_bytes, sent.pool.chunk_bytes);
  EXPECT_EQ(got.pool.rkeys, sent.pool.rkeys);
  const auto packed = pack(sent);
  const ChannelEnd end = unpack_end(std::span(packed).first(sizeof(ChannelEnd)));
  EXPECT_EQ(std::memcmp(&end, &sent.end, sizeof end), 0);
}

TEST(Handshake, APoolSmallerThanItsChunkHasOneKey) {
  EXPECT_EQ(refusal([](auto& a) { a.pool = {99, 4096, 1, 64 * kMiB, {1}}; }), "");
}

TEST(Handshake, InvalidEndIsRefusedByField) {
  using A = ChannelAnswer;
  EXPECT_TRUE(says(refusal([](A& a) { a.end.qpn = 0; }), "qpn 0 is none"));
  EXPECT_TRUE(says(refusal([](A& a) { a.end.qpn = 1 << 24; }), "qpn 16777216"));
  EXPECT_TRUE(says(refusal([](A& a) { a.end.psn = 1 << 24; }), "psn 16777216"));
  EXPECT_TRUE(says(refusal([](A& a) { a.end.mtu = 0; }), "mtu 0"));
  EXPECT_TRUE(says(refusal([](A& a) { a.end.mtu = 6; }), "mtu 6"));
  EXPECT_TRUE(says(refusal([](A& a) { a.end.rd_atomic = 0; }), "rd_atomic is 0"));
  EXPECT_TRUE(says(refusal([](A& a) { a.end.link_layer = 0; }), "link_layer 0"));
  EXPECT_TRUE(says(refusal([](A& a) { a.end.link_layer = 3; }), "link_layer 3"));
  EXPECT_TRUE(says(refusal([](A& a) { a.end.gid[0] = 0xff; }), "multicast"));
  EXPECT_TRUE(says(refusal([](A& a) { a.end.gid = {}; }), "gid on Ethernet is zeros"));
  EXPECT_EQ(refusal([](A& a) { a.end.gid = {}, a.end.link_layer = 1; }), "");
}

TEST(Handshake, PoolChunksMustBeMultiplesOfTwoMiB) {
  // Each tiny chunk would need its own request, more than one doorbell has room for.
  const auto in_pieces_of = [](uint64_t chunk_bytes) {
    return refusal([=](ChannelAnswer& a) {
      a.pool.bytes = 65536 * std::min<uint64_t>(chunk_bytes, 64);
      a.pool.chunk_bytes = chunk_bytes;
      a.pool.rkeys.assign(chunk_bytes == 0 ? 0 : 65536, 7);
    });
  };
  for (uint64_t chunk_bytes : std::vector<uint64_t>{0, 1, 64, 4096, 2 * kMiB - 64, 2 * kMiB + 64}) {
    EXPECT_TRUE(says(in_pieces_of(chunk_bytes), "is no multiple of 2097152")) << chunk_bytes;
  }
}

TEST(Handshake, APoolWithoutAKeyForEveryChunkIsRefused) {
  using A = ChannelAnswer;
  EXPECT_TRUE(says(refusal([](A& a) { a.pool.bytes = 0; }), "a pool of 0 bytes"));
  EXPECT_TRUE(says(refusal([](A& a) { a.pool.bytes = 6 * kMiB + 1; }), "with 3 keys"));
  EXPECT_TRUE(says(refusal([](A& a) { a.pool.bytes = 4 * kMiB; }), "with 3 keys"));
  EXPECT_TRUE(says(refusal([](A& a) { a.pool.bytes = UINT64_MAX; }), "with 3 keys"));
  EXPECT_TRUE(says(refusal([](A& a) { a.pool.rkeys.clear(); }), "with 0 keys"));
  EXPECT_TRUE(says(refusal([](A& a) { a.pool.address = UINT64_MAX - 4096; }), "a pool of"));
  EXPECT_TRUE(says(refusal([](A& a) {
                     a.pool.bytes = 65537 * 2 * kMiB;
                     a.pool.rkeys.assign(65537, 1);
                   }),
                   "with 65537 keys"));
  // The largest chunk_bytes, so that rounding up overflows.
  EXPECT_FALSE(refusal([](A& a) {
                 a.pool.bytes = UINT64_MAX - 4096;
                 a.pool.address = 0;
                 a.pool.chunk_bytes = UINT64_MAX / (2 * kMiB) * (2 * kMiB);
                 a.pool.rkeys.clear();
               }).empty());
}

TEST(Handshake, EveryOtherLengthIsRefused) {
  std::vector<std::byte> packed = pack(answer());
  for (size_t bytes = 0; bytes < packed.size(); ++bytes) {
    EXPECT_THROW(unpack_answer(std::span(packed).first(bytes)), std::invalid_argument) << bytes;
    if (bytes == sizeof(ChannelEnd)) continue;
    EXPECT_THROW(unpack_end(std::span(packed).first(bytes)), std::invalid_argument) << bytes;
  }
  packed.push_back({});
  EXPECT_THROW(unpack_answer(packed), std::invalid_argument);
}

}  // namespace
}  // namespace peercached::rdma
