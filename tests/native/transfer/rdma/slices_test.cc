// Cutting a batch into slices and reassembling it, without a device.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "transfer/fixture.h"
#include "transfer/rdma/peer_read.h"

namespace peercached::rdma {
namespace {

constexpr uint64_t kPoolBytes = 64 << 20;

class Nobody final : public ChannelRequests {
 public:
  bool request_channel(HolderIndex, uint32_t, std::span<const std::byte>,
                       std::span<const uint32_t>) override {
    return false;
  }
};

class RdmaSlices : public ::testing::Test {
 protected:
  RdmaSlices() { table.add(memory.data(), memory.size()); }

  // Adds a page at its own place in pool and region, with a header that matches its record.
  ReadOp& page(uint32_t length) {
    ReadOp& op = ops.emplace_back();
    op.digest = testing::digest_of_page(ops.size());
    op.generation = 7;
    op.length = length;
    op.offset = next_offset;
    op.dest = memory.data() + next_dest;
    next_offset += (length + 64 + 4095) / 4096 * 4096;
    next_dest += length;
    return op;
  }
  SlotHeader header_of(const ReadOp& op) const {
    SlotHeader header;
    header.digest = op.digest;
    header.incarnation = testing::kHolderIncarnation;
    header.generation = op.generation;
    header.length = op.length;
    header.state = kSlotCommitted;
    header.version = kSlotVersion;
    seal(header);
    return header;
  }
  PeerRead& begin(size_t lanes = 1) {
    batch = {testing::kPeer, testing::kHolderIncarnation, ops};
    read = std::make_unique<PeerRead>(call, batch, channels);
    read->split_for(lanes);
    return *read;
  }
  // All remaining slices, in the order of their requests.
  std::vector<Slice> claim_all(uint64_t pool_bytes = kPoolBytes) {
    std::vector<Slice> all, chain;
    while (read->claim(pool_bytes, chain) != nullptr) {
      EXPECT_LE(chain.size(), kChainSlicesMax);
      all.insert(all.end(), chain.begin(), chain.end());
    }
    return all;
  }

  std::vector<std::byte> memory = std::vector<std::byte>(32 << 20);
  MemoryTable table{{}};
  Nobody nobody;
  std::atomic<uint32_t> next_number{1};
  std::shared_ptr<PeerChannels> channels = std::make_shared<PeerChannels>(
      testing::kPeer, testing::kHolderIncarnation, std::span<const std::unique_ptr<Rail>>(), 1,
      nobody, next_number);
  testing::Gate gate;
  VerifyingSink sink{Verify::header};
  ReadCall call{Deadline::after_ms(60'000), gate.gate, sink, table, false, Clock::duration::max()};
  std::vector<ReadOp> ops;
  ReadBatch batch;
  std::unique_ptr<PeerRead> read;
  uint64_t next_offset = 0, next_dest = 0;
};

TEST_F(RdmaSlices, CoverEveryByteOnce) {
  for (uint32_t length : {1u, 4096u, 3u << 20, (5u << 20) + 1}) page(length);
  begin(3);
  std::vector<uint64_t> covered(ops.size());
  for (const Slice& slice : claim_all()) {
    EXPECT_EQ(slice.at, covered[slice.op]) << "page " << slice.op;
    EXPECT_GT(slice.bytes, 0u);
    covered[slice.op] += slice.bytes;
  }
  for (size_t i = 0; i < ops.size(); ++i) EXPECT_EQ(covered[i], ops[i].length);
}

TEST_F(RdmaSlices, LargePageIsOkWhenItsSlicesLandInReverse) {
  page(4 << 20);
  begin();
  const std::vector<Slice> slices = claim_all();
  ASSERT_GT(slices.size(), 2u);
  const SlotHeader header = header_of(ops[0]);
  for (size_t i = slices.size(); i-- > 0;) read->landed(slices[i], header, header);
  EXPECT_EQ(ops[0].status, PageStatus::ok);
  EXPECT_TRUE(read->settled());
}

TEST_F(RdmaSlices, SliceOfAnotherSlotUseMakesThePageStale) {
  page(4 << 20);
  SlotHeader later = header_of(ops[0]);
  ++later.generation;
  seal(later);
  SlotHeader gone = header_of(ops[0]);
  gone.state = kSlotInvalid;
  for (const SlotHeader& other : {later, gone, SlotHeader{}}) {
    const size_t count = (begin(), claim_all().size());
    for (size_t odd = 0; odd < count; ++odd) {
      begin();
      const std::vector<Slice> slices = claim_all();
      const SlotHeader header = header_of(ops[0]);
      for (size_t i = 0; i < slices.size(); ++i) {
        read->landed(slices[i], header, i == odd ? other : header);
      }
      EXPECT_EQ(ops[0].status, PageStatus::stale) << "slice " << odd;
    }
  }
}

TEST_F(RdmaSlices, HeaderInvalidatedAfterThePayloadMakesThePageStale) {
  page(5000);
  begin();
  const SlotHeader header = header_of(ops[0]);
  SlotHeader gone = header;
  gone.state = kSlotInvalid;
  read->landed(claim_all().at(0), header, gone);
  EXPECT_EQ(ops[0].status, PageStatus::stale);
}

TEST_F(RdmaSlices, BrokenSliceFailsOnlyItsPageAfterThreeTries) {
  page(5000);
  page(5000);
  begin();
  for (int attempt = 1; attempt <= 3; ++attempt) {
    const std::vector<Slice> slices = claim_all();
    ASSERT_EQ(slices.size(), attempt == 1 ? 2u : 1u);
    if (attempt == 1) read->landed(slices[1], header_of(ops[1]), header_of(ops[1]));
    read->put_back(std::span(slices).first(1), true);
  }
  EXPECT_TRUE(claim_all().empty());
  EXPECT_EQ(ops[0].status, PageStatus::error);
  EXPECT_EQ(ops[1].status, PageStatus::ok);
  EXPECT_TRUE(read->settled());
}

TEST_F(RdmaSlices, LateSliceCanBeClaimedAgainManyTimes) {
  page(5000);
  begin();
  for (int attempt = 0; attempt < 10; ++attempt) read->put_back(claim_all(), false);
  EXPECT_EQ(claim_all().size(), 1u);
}

TEST_F(RdmaSlices, RecordOutsideAnySlotIsStaleWithoutARead) {
  for (uint64_t offset : {kPoolBytes, kPoolBytes - 4096, kPoolBytes - 5000, 4096ul + 8, UINT64_MAX,
                          UINT64_MAX - 63, UINT64_MAX - 5063, 1ul << 63}) {
    page(5000).offset = offset;
  }
  page(5000).offset = kPoolBytes - 8192;
  begin();
  const std::vector<Slice> slices = claim_all();
  ASSERT_EQ(slices.size(), 1u);
  EXPECT_EQ(slices[0].op, ops.size() - 1);
  for (size_t i = 0; i + 1 < ops.size(); ++i) EXPECT_EQ(ops[i].status, PageStatus::stale) << i;
}

TEST_F(RdmaSlices, DestinationOutsideARegionIsAnError) {
  page(5000).dest = memory.data() - 1;
  page(5000).dest = memory.data() + memory.size();
  page(5000).dest = memory.data() + memory.size() - 4999;
  page(5000).dest = memory.data() + memory.size() - 5000;
  page(0);
  begin();
  const std::vector<Slice> slices = claim_all();
  ASSERT_EQ(slices.size(), 1u);
  EXPECT_EQ(slices[0].op, 3u);
  read->finish();
  for (size_t i : {0, 1, 2, 4}) EXPECT_EQ(ops[i].status, PageStatus::error) << i;
}

TEST_F(RdmaSlices, TheLargestPageIsCutIntoSlicesThatAddUp) {
  // A region that is never touched: only its addresses matter.
  auto* far = reinterpret_cast<std::byte*>(1ull << 40);
  table.add(far, 2ull * kPageBytesMax);
  ReadOp& op = page(1);
  op.length = kPageBytesMax;
  op.dest = far;
  begin(16);
  uint64_t sum = 0;
  for (const Slice& slice : claim_all(4ull * kPageBytesMax)) {
    EXPECT_EQ(slice.at, sum);
    sum += slice.bytes;
  }
  EXPECT_EQ(sum, kPageBytesMax);
}

}  // namespace
}  // namespace peercached::rdma
