// Reader and holder together, over soft-RoCE.
#include "rdma/rdma_fixture.h"

namespace peercached::testing {
namespace {

class RdmaRead : public RdmaTest {};

TEST_F(RdmaRead, EveryMixOfSizesArrivesByteForByte) {
  RdmaHolder holder(200 << 20, {"rxe0"});
  RdmaReader reader(holder, {"rxe1"});
  read_mixes(holder, [&](const auto& rows, uint64_t first) { expect_read(reader, rows, first); });
  EXPECT_EQ(reader.troubles(), std::vector<std::string>());
}

TEST_F(RdmaRead, FiveThousandPagesAreOneCall) {
  RdmaHolder holder(64 << 20, {"rxe0"});
  RdmaReader reader(holder, {"rxe1"});
  std::vector<RecordRow> rows;
  for (uint64_t i = 0; i < 5000; ++i) rows.push_back(holder.set(i, 1000 + i % 3000));
  expect_read(reader, rows, 0);
  EXPECT_EQ(reader.fabric.engine().health().at(0).pages, 5000u);
}

TEST_F(RdmaRead, LargePagesAreStripedOverTheRails) {
  RdmaHolder holder(64 << 20, {"rxe0", "rxe2"});
  RdmaReader reader(holder, {"rxe1", "rxe3"});
  const std::vector<RecordRow> rows = holder.set_many(0, 2, 16 << 20);
  // A channel that is not connected yet leaves its work to the others.
  const auto both = [&] {
    expect_read(reader, rows, 0);
    const auto& rails = reader.fabric.rails();
    return rails[0]->counters.bytes > 0 && rails[1]->counters.bytes > 0;
  };
  EXPECT_TRUE(eventually(both));
}

TEST_F(RdmaRead, ManyThreadsShareOneChannel) {
  RdmaHolder holder(64 << 20, {"rxe0"});
  RdmaReader reader(holder, {"rxe1"}, 1);
  const std::vector<RecordRow> rows = holder.set_many(0, 40, 60'000);
  on_threads(16, [&] { expect_read(reader, rows, 0); });
  EXPECT_EQ(reader.connects, 1u);
  EXPECT_EQ(holder.fabric.responder().channels(), 1u);
}

TEST_F(RdmaRead, AReusedSlotIsStale) {
  RdmaHolder holder(64 << 20, {"rxe0"});
  RdmaReader reader(holder, {"rxe1"});
  RecordRow row = holder.set(1, 100'000);
  ++row.generation;
  EXPECT_EQ(one_read(reader, row), PageStatus::stale);
}

TEST_F(RdmaRead, RecordOutsideAnySlotIsStaleAndOthersAreRead) {
  RdmaHolder holder(64 << 20, {"rxe0"});
  RdmaReader reader(holder, {"rxe1"});
  std::vector<RecordRow> rows{holder.set(0, 5000), holder.set(1, 5000), holder.set(2, 5000)};
  rows[1].offset = 1ull << 40;
  rows[2].offset = (64 << 20) - 4096;
  Reading reading(rows);
  reader.read(reading);
  EXPECT_EQ(reading.ops[0].status, PageStatus::ok);
  EXPECT_EQ(reading.ops[1].status, PageStatus::stale);
  EXPECT_EQ(reading.ops[2].status, PageStatus::stale);
}

TEST_F(RdmaRead, MemoryThatIsNoRegionIsNeverWritten) {
  RdmaHolder holder(64 << 20, {"rxe0"});
  RdmaReader reader(holder, {"rxe1"});
  Reading reading({holder.set(0, 5000)});
  reading.read(reader.fabric.engine());
  EXPECT_EQ(reading.ops[0].status, PageStatus::error);
  EXPECT_TRUE(is_painted(reading.memory.data(), reading.memory.size()));
}

TEST_F(RdmaRead, FenceEndsTheReadAndItsWrites) {
  RdmaHolder holder(200 << 20, {"rxe0"});
  RdmaReader reader(holder, {"rxe1"});
  const std::vector<RecordRow> rows = holder.set_many(0, 20, 8 << 20);
  (void)one_read(reader, rows[0]);  // now there is a channel
  Reading reading(rows);
  reader.fabric.regions().add(reading.memory.data(), reading.memory.size());
  std::vector<std::byte> then;
  std::thread fencing([&] {
    EXPECT_TRUE(eventually([&] { return !is_painted(reading.memory.data(), 64); }));
    reading.gate.fence();
    // From here on, the worker may reuse its memory, whatever the daemon answers.
    EXPECT_TRUE(eventually([&] { return reading.gate.quiet(); }));
    then = reading.memory;
  });
  reading.read(reader.fabric.engine(), 60'000);
  fencing.join();
  EXPECT_GT(reading.count(PageStatus::deadline), 0u);
  // The channel was given up, so the next read opens another. After this many bytes on the same
  // wire, any bytes in flight would have arrived.
  Reading again(rows);
  reader.read(again, patient_ms(60'000));
  expect_pages(again, 0);
  EXPECT_TRUE(then == reading.memory);
  reader.fabric.regions().remove(reading.memory.data());
}

TEST_F(RdmaRead, DeadlineEndsTheReadAndItsWrites) {
  RdmaHolder holder(400 << 20, {"rxe0"});
  RdmaReader reader(holder, {"rxe1"});
  const std::vector<RecordRow> rows = holder.set_many(0, 40, 8 << 20);
  Reading reading(rows);
  reader.fabric.regions().add(reading.memory.data(), reading.memory.size());
  const TimePoint start = Clock::now();
  reading.read(reader.fabric.engine(), 60);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
  EXPECT_GT(reading.count(PageStatus::deadline), 0u);
  EXPECT_EQ(reading.count(PageStatus::error), 0u);
  const std::vector<std::byte> then = reading.memory;
  // As many bytes again over the same wire, so that late ones would have arrived.
  EXPECT_TRUE(eventually([&] {
    Reading again({rows[0], rows[1], rows[2]});
    reader.read(again);
    return again.count(PageStatus::ok) == 3;
  }));
  EXPECT_TRUE(then == reading.memory);
  reader.fabric.regions().remove(reading.memory.data());
}

TEST_F(RdmaRead, AnExpelledReaderReadsNothing) {
  RdmaHolder holder(64 << 20, {"rxe0"});
  RdmaReader reader(holder, {"rxe1"});
  const RecordRow row = holder.set(0, 5000);
  expect_read(reader, {row}, 0);
  holder.fabric.responder().drop_reader("reader", kReaderIncarnation);
  EXPECT_EQ(holder.fabric.responder().channels(), 0u);
  reader.refuse = true;
  Reading reading({row});
  reader.read(reading);
  EXPECT_EQ(reading.ops[0].status, PageStatus::error);
  EXPECT_TRUE(is_painted(reading.memory.data(), reading.memory.size()));
  EXPECT_EQ(reader.troubles().size(), 1u);
}

TEST_F(RdmaRead, AHolderThatRestartedIsNotReadFrom) {
  RdmaHolder holder(64 << 20, {"rxe0"}, kHolderIncarnation + 1);
  RdmaReader reader(holder, {"rxe1"});
  // The record is of kHolderIncarnation.
  EXPECT_EQ(one_read(reader, holder.set(0, 5000)), PageStatus::error);
}

TEST_F(RdmaRead, AHolderThatNeverConnectsCostsTheDeadlineOnly) {
  RdmaHolder holder(64 << 20, {"rxe0"});
  RdmaReader reader(holder, {"rxe1"});
  reader.hang = true;
  EXPECT_EQ(one_read(reader, holder.set(0, 5000), 100), PageStatus::deadline);
}

TEST_F(RdmaRead, DroppingThePeerEndsAReadUnderWay) {
  RdmaHolder holder(400 << 20, {"rxe0"});
  RdmaReader reader(holder, {"rxe1"});
  const std::vector<RecordRow> rows = holder.set_many(0, 40, 8 << 20);
  Reading reading(rows);
  reader.fabric.regions().add(reading.memory.data(), reading.memory.size());
  std::thread dropping([&] {
    EXPECT_TRUE(eventually([&] { return !is_painted(reading.memory.data(), 64); }));
    reader.fabric.engine().drop_peer(kPeer);
  });
  reading.read(reader.fabric.engine(), 60'000);
  dropping.join();
  EXPECT_GT(reading.count(PageStatus::error), 0u);
  EXPECT_EQ(reader.troubles(), std::vector<std::string>());
  reader.fabric.regions().remove(reading.memory.data());
}

}  // namespace
}  // namespace peercached::testing
