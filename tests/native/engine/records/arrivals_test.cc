#include "engine/records/arrivals.h"

#include <gtest/gtest.h>

#include <thread>

#include "eventually.h"

namespace peercached {
namespace {

constexpr auto kLong = std::chrono::seconds(60);

RecordRow row_of(const Digest& digest, uint8_t flags = kRecordResident) {
  RecordRow row{};
  row.digest = digest;
  row.flags = flags;
  return row;
}

TEST(Arrivals, WakeWhoWaitsForThePageAndNobodyElse) {
  Arrivals arrivals;
  const Digest wanted{1, 2}, other{3, 4};
  std::atomic<bool> woken{false};
  std::thread waiter([&] {
    Arrivals::Wait wait(arrivals, wanted);
    wait.until(Clock::now() + kLong);
    woken = true;
  });
  ASSERT_TRUE(eventually([&] { return arrivals.waiting() == 1; }));
  const RecordRow rows[] = {row_of(other), row_of(wanted, kRecordWithdraw)};
  arrivals.came(rows);
  EXPECT_FALSE(woken);
  const RecordRow row = row_of(wanted);
  arrivals.came({&row, 1});
  waiter.join();
  EXPECT_EQ(arrivals.waiting(), 0u);
}

TEST(Arrivals, BetweenRegistrationAndWaitAreNotMissed) {
  Arrivals arrivals;
  const Digest wanted{1, 2};
  Arrivals::Wait one(arrivals, wanted), another(arrivals, wanted);
  const RecordRow row = row_of(wanted);
  arrivals.came({&row, 1});
  one.until(Clock::now() + kLong);
  another.until(Clock::now() + kLong);
}

TEST(Arrivals, CloseEndsAllWaits) {
  Arrivals arrivals;
  Arrivals::Wait one(arrivals, {1, 2});
  std::thread closer([&] { arrivals.close(); });
  one.until(Clock::now() + kLong);
  closer.join();
  EXPECT_TRUE(arrivals.closed());
}

TEST(Arrivals, LookAgainWakesAll) {
  Arrivals arrivals;
  arrivals.look_again();
  Arrivals::Wait one(arrivals, {1, 2}), another(arrivals, {3, 4});
  arrivals.look_again();
  one.until(Clock::now() + kLong);
  another.until(Clock::now() + kLong);
}

}  // namespace
}  // namespace peercached
