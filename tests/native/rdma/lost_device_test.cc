// Lost RDMA devices. Soft-RoCE never loses one, so the test sends the event.
#include "rdma/rdma_fixture.h"

namespace peercached::testing {
namespace {

TEST(RdmaLostDevice, StaysDownForATimeThoughItsPortIsActive) {
  RdmaReader reader({"rxe1"});
  rdma::Rail& rail = *reader.fabric.rails()[0];
  TimePoint failed = Clock::now();
  reader.fabric.happened(rail, IBV_EVENT_DEVICE_FATAL);
  EXPECT_FALSE(rail.up());
  EXPECT_EQ(rail.look().why_not, "");
  EXPECT_NE(rail.why_down(), "");
  EXPECT_TRUE(eventually([&] { return rail.up(); }));
  EXPECT_GE(Clock::now() - failed, std::chrono::milliseconds(1000));
  // After a second loss, the device must wait longer.
  failed = Clock::now();
  reader.fabric.happened(rail, IBV_EVENT_DEVICE_FATAL);
  EXPECT_TRUE(eventually([&] { return rail.up(); }));
  EXPECT_GE(Clock::now() - failed, std::chrono::milliseconds(2000));
}

TEST(RdmaLostDevice, ServesReadsAgainAfterItReturns) {
  RdmaHolder holder(64 << 20, {"rxe0"});
  RdmaReader reader(holder, {"rxe1"});
  const RecordRow row = holder.set(0, 5000);
  EXPECT_EQ(one_read(reader, row), PageStatus::ok);
  reader.fabric.happened(*reader.fabric.rails()[0], IBV_EVENT_DEVICE_FATAL);
  EXPECT_EQ(one_read(reader, row), PageStatus::error);
  EXPECT_TRUE(eventually([&] { return one_read(reader, row) == PageStatus::ok; }));
}

}  // namespace
}  // namespace peercached::testing
