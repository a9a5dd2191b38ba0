// Rails that lose packets while no device reports an error, over soft-RoCE.
#include <functional>

#include "rdma/rdma_fixture.h"

namespace peercached::testing {
namespace {

class RdmaSilentRail : public RdmaTest {
 protected:
  const int short_ms = patient_ms(150);
  const int long_ms = patient_ms(10'000);

  // A device that retransmits for ever and reports nothing.
  static rdma::LinkSettings for_ever() {
    rdma::LinkSettings link;
    link.retry_count = 7;
    return link;
  }

  // Returns whether `action` takes less than `ms`.
  static bool takes_less(const std::function<void()>& action, int ms) {
    const TimePoint started = Clock::now();
    action();
    return Clock::now() - started < std::chrono::milliseconds(ms);
  }

  static PageStatus one_read(RdmaReader& reader, const RecordRow& row, int deadline_ms) {
    Reading reading({row});
    reader.read(reading, deadline_ms);
    if (reading.ops[0].status == PageStatus::ok) expect_pages(reading, 0);
    return reading.ops[0].status;
  }
};

TEST_F(RdmaSilentRail, MakesOnlyTheFirstReadWaitForItsDeadline) {
  RdmaHolder holder(64 << 20, {"rxe0"});
  RdmaReader reader(holder, {"rxe1"}, 8, for_ever());
  const RecordRow row = holder.set(0, 5000);
  reader.deaf_rails = 1;
  // The first read ends at its deadline; so does a second if the channel opened late.
  ASSERT_TRUE(eventually([&] { return one_read(reader, row, short_ms) == PageStatus::error; }));
  // Its channels are retried all the while, and no read waits for that.
  const unsigned before = reader.connects;
  ASSERT_TRUE(eventually([&] {
    EXPECT_EQ(one_read(reader, row, long_ms), PageStatus::error);  // before its deadline
    return HasFailure() || reader.connects > before + 1;
  }));
  ASSERT_EQ(reader.troubles().size(), 1u);
  EXPECT_NE(reader.troubles()[0].find("rxe1"), std::string::npos);
  reader.deaf_rails = 0;
  EXPECT_TRUE(eventually([&] { return one_read(reader, row, long_ms) == PageStatus::ok; }));
  EXPECT_EQ(one_read(reader, row, long_ms), PageStatus::ok);
}

TEST_F(RdmaSilentRail, CostsNoPageWithASecondRail) {
  RdmaHolder holder(64 << 20, {"rxe0", "rxe2"});
  RdmaReader reader(holder, {"rxe1", "rxe3"}, 8, for_ever());
  reader.deaf_rails = 1;
  // More than one rail may have in flight. Every other lane starts on the silent rail.
  const std::vector<RecordRow> rows = holder.set_many(0, 24, 1 << 20);
  Reading reading(rows);
  EXPECT_TRUE(takes_less([&] { reader.read(reading, 2 * long_ms); }, long_ms));
  expect_pages(reading, 0);
  ASSERT_EQ(reader.troubles().size(), 1u);
  EXPECT_NE(reader.troubles()[0].find("no answer"), std::string::npos) << reader.troubles()[0];
}

TEST_F(RdmaSilentRail, LeavesTheCallTimeForTcp) {
  RdmaHolder holder(64 << 20, {"rxe0"});
  RdmaReader reader(holder, {"rxe1"}, 8, for_ever(), true);
  const RecordRow row = holder.set(0, 5000);
  reader.deaf_rails = 1;
  const auto fails = [&] { EXPECT_EQ(one_read(reader, row, 2 * long_ms), PageStatus::error); };
  EXPECT_TRUE(takes_less(fails, long_ms));
  EXPECT_FALSE(reader.fabric.engine().reaches(kPeer));
}

TEST_F(RdmaSilentRail, WithoutAConnectionLeavesTheCallTimeForTcp) {
  RdmaHolder holder(64 << 20, {"rxe0"});
  RdmaReader reader(holder, {"rxe1"}, 8, for_ever(), true);
  const RecordRow row = holder.set(0, 5000);
  reader.hang = true;
  const auto fails = [&] { EXPECT_EQ(one_read(reader, row, 2 * long_ms), PageStatus::error); };
  EXPECT_TRUE(takes_less(fails, long_ms));
  EXPECT_TRUE(takes_less(fails, long_ms / 10)) << "no other read waits for it";
}

TEST_F(RdmaSilentRail, IsTrustedAgainAfterOneProvenChannel) {
  RdmaHolder holder(64 << 20, {"rxe0"});
  RdmaReader reader(holder, {"rxe1"}, 8, for_ever(), true);
  const RecordRow row = holder.set(0, 5000);
  // Eight reads each wait for a channel, and no channel opens in time.
  reader.slow = true;
  std::vector<std::thread> reads;
  for (int i = 0; i < 8; ++i) reads.emplace_back([&] { one_read(reader, row, 2 * long_ms); });
  for (std::thread& read : reads) read.join();
  EXPECT_FALSE(reader.fabric.engine().reaches(kPeer));
  reader.slow = false;
  reader.wait();
  ASSERT_TRUE(eventually([&] { return reader.fabric.engine().reaches(kPeer); }));
  // Channels that connect before it is trusted are given up, and later ones are kept.
  EXPECT_GE(reader.fabric.rails()[0]->counters.channels, 1u);
  // The rail falls silent again. Earlier proof must not count.
  reader.deaf_rails = 1;
  reader.fabric.engine().leave_rail(*reader.fabric.rails()[0]);
  EXPECT_EQ(one_read(reader, row, 2 * long_ms), PageStatus::error);
  EXPECT_FALSE(reader.fabric.engine().reaches(kPeer));
}

// No read looks whether the proof came in time.
TEST_F(RdmaSilentRail, IsTrustedAgainWhileNobodyReads) {
  RdmaHolder holder(64 << 20, {"rxe0"});
  RdmaReader reader(holder, {"rxe1"}, 8, for_ever(), true);
  const RecordRow row = holder.set(0, 5000);
  reader.deaf_rails = 1;
  EXPECT_EQ(one_read(reader, row, 2 * long_ms), PageStatus::error);
  ASSERT_EQ(reader.troubles().size(), 1u);
  // From now on only the watching thread connects test channels.
  reader.connect_ms = 50;
  ASSERT_TRUE(eventually([&] { return reader.connects > 3; }));
  reader.deaf_rails = 0;
  EXPECT_TRUE(eventually([&] { return reader.troubles().empty(); })) << reader.troubles()[0];
}

TEST_F(RdmaSilentRail, LeavesTheReadsToTheOtherRail) {
  RdmaHolder holder(64 << 20, {"rxe0", "rxe2"});
  RdmaReader reader(holder, {"rxe1", "rxe3"}, 8, for_ever());
  const RecordRow row = holder.set(0, 5000);
  reader.deaf_rails = 1;
  const auto four_arrive = [&] {  // two of them start on the silent rail
    for (int i = 0; i < 4; ++i) {
      if (one_read(reader, row, short_ms) != PageStatus::ok) return false;
    }
    return true;
  };
  ASSERT_TRUE(eventually(four_arrive));
  const auto& rails = reader.fabric.rails();
  EXPECT_EQ(rails[0]->counters.bytes, 0u);
  reader.deaf_rails = 0;
  EXPECT_TRUE(eventually([&] {
    EXPECT_EQ(one_read(reader, row, long_ms), PageStatus::ok);
    return HasFailure() || rails[0]->counters.bytes > 0;
  }));
}

TEST_F(RdmaSilentRail, ToOnePeerDoesNotDelayReadsOfOthers) {
  constexpr HolderIndex kOther = kPeer + 1;
  RdmaHolder hung(64 << 20, {"rxe0"}), other(64 << 20, {"rxe2"});
  RdmaReader reader({"rxe1"}, 8, for_ever());
  reader.knows(hung);
  reader.knows(other, other.endpoint(), kOther);
  reader.deaf_rails = 1;
  Reading waiting(hung.set_many(0, 20, 1 << 20));  // more than may be in flight
  reader.fabric.regions().add(waiting.memory.data(), waiting.memory.size());
  std::thread hanging([&] { waiting.read(reader.fabric.engine(), 6 * long_ms); });
  EXPECT_TRUE(eventually([&] { return !waiting.gate.quiet(); }));
  for (uint64_t first : {100, 200, 300}) {
    Reading reading(other.set_many(first, 10, 1 << 20), kOther);
    reader.read(reading, long_ms);
    expect_pages(reading, first);
  }
  EXPECT_FALSE(waiting.gate.quiet()) << "all the while";
  reader.fabric.engine().drop_peer(kPeer);
  hanging.join();
  EXPECT_EQ(waiting.count(PageStatus::ok), 0u);
  reader.fabric.regions().remove(waiting.memory.data());
}

TEST_F(RdmaSilentRail, ToOnePeerCostsOthersNoPageOfTheSameRead) {
  constexpr HolderIndex kOther = kPeer + 1;
  RdmaHolder hung(64 << 20, {"rxe0"}), other(64 << 20, {"rxe2"});
  RdmaReader reader({"rxe1"}, 8, for_ever());
  reader.knows(hung);
  reader.knows(other, other.endpoint(), kOther);
  reader.deaf_rails = 1;
  Reading silent(hung.set_many(0, 20, 1 << 20));  // more than may be in flight
  Reading answered(other.set_many(100, 20, 1 << 20), kOther);
  for (Reading* one : {&silent, &answered}) {
    reader.fabric.regions().add(one->memory.data(), one->memory.size());
  }
  ReadBatch batches[] = {silent.batch, answered.batch};
  VerifyingSink sink(Verify::checksum);
  reader.fabric.engine().read(batches, Deadline::after_ms(patient_ms(2'000)), silent.gate.gate,
                              sink);
  EXPECT_TRUE(silent.gate.quiet());
  EXPECT_EQ(silent.count(PageStatus::ok), 0u);
  expect_pages(answered, 100);
  for (Reading* one : {&silent, &answered}) reader.fabric.regions().remove(one->memory.data());
}

}  // namespace
}  // namespace peercached::testing
