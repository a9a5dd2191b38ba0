// The forecasts of loads: what is measured, what is guessed, and what is forgotten.
#include "engine/measures/load_times.h"

#include <gtest/gtest.h>

namespace peercached {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr LoadPlace kQuick{Source::peer, 1}, kSlow{Source::peer, 2}, kNew{Source::peer, 3};
constexpr uint64_t kMiB = 1 << 20;

void load(LoadTimes& times, LoadPlace place, uint64_t bytes, milliseconds took, TimePoint now) {
  LoadTimes::Load(times, place, bytes).took(bytes, took, now);
}

double p50_ms(LoadTimes& times, LoadPlace place, uint64_t bytes, TimePoint now) {
  const LoadCurve curve = times.curve(place, now);
  return curve.ratio_p50 * curve.us(bytes) / 1e3;
}

double p90_ms(LoadTimes& times, LoadPlace place, uint64_t bytes, TimePoint now) {
  const LoadCurve curve = times.curve(place, now);
  return curve.ratio_p90 * curve.us(bytes) / 1e3;
}

TEST(LoadTimes, LatencyAndRateComeFromLoadsOfSeveralSizes) {
  LoadTimes times;
  const TimePoint now = Clock::now();
  for (int i = 0; i < 40; ++i) {
    for (const int mib : {1, 4, 16})
      load(times, kQuick, mib * kMiB, milliseconds(20 + 5 * mib), now);
  }
  EXPECT_NEAR(p50_ms(times, kQuick, 2 * kMiB, now), 30, 3);
  EXPECT_NEAR(p50_ms(times, kQuick, 8 * kMiB, now), 60, 3);
  EXPECT_NEAR(p90_ms(times, kQuick, 8 * kMiB, now), 60, 6);
}

TEST(LoadTimes, TheP90IsThatOfTheSpread) {
  LoadTimes times;
  const TimePoint now = Clock::now();
  for (int i = 0; i < 100; ++i) load(times, kQuick, kMiB, milliseconds(i % 4 == 0 ? 80 : 10), now);
  EXPECT_NEAR(p50_ms(times, kQuick, kMiB, now), 10, 1);
  EXPECT_NEAR(p90_ms(times, kQuick, kMiB, now), 80, 1);
}

TEST(LoadTimes, ANewHolderIsForecastAsTheOthers) {
  LoadTimes times;
  const TimePoint now = Clock::now();
  const double guessed_ms = p50_ms(times, kNew, kMiB, now);
  EXPECT_LT(guessed_ms, 10);
  for (int i = 0; i < 50; ++i) load(times, kQuick, kMiB, milliseconds(40), now);
  EXPECT_NEAR(p50_ms(times, kNew, kMiB, now), 40, 4);
}

TEST(LoadTimes, OneSlowLoadRaisesTheP90OfItsHolderAtOnce) {
  LoadTimes times;
  const TimePoint now = Clock::now();
  for (int i = 0; i < 50; ++i) load(times, kQuick, kMiB, milliseconds(10), now);
  for (int i = 0; i < 50; ++i) load(times, kSlow, kMiB, milliseconds(10), now);
  load(times, kSlow, kMiB, milliseconds(1000), now);
  EXPECT_GT(p90_ms(times, kSlow, kMiB, now), 900);
  EXPECT_LT(p90_ms(times, kQuick, kMiB, now), 12);
}

TEST(LoadTimes, ALoadThatWasGivenUpCountsAsLonger) {
  LoadTimes times;
  const TimePoint now = Clock::now();
  LoadTimes::Load(times, kSlow, 8 * kMiB).took(2 * kMiB, milliseconds(100), now);
  EXPECT_NEAR(p90_ms(times, kSlow, 8 * kMiB, now), 400, 20);
  LoadTimes::Load(times, kNew, 8 * kMiB).took(0, milliseconds(100), now);
  EXPECT_NEAR(p90_ms(times, kNew, 8 * kMiB, now), 200, 20);
}

TEST(LoadTimes, LoadsUnderWayAreWaitedFor) {
  LoadTimes times;
  const TimePoint now = Clock::now();
  for (int i = 0; i < 100; ++i) load(times, kQuick, 8 * kMiB, milliseconds(80), now);
  EXPECT_NEAR(p50_ms(times, kQuick, 8 * kMiB, now), 80, 5);
  {
    const LoadTimes::Load other(times, kQuick, 8 * kMiB);
    EXPECT_NEAR(p50_ms(times, kQuick, 8 * kMiB, now), 160, 10);
    EXPECT_NEAR(p50_ms(times, kNew, 8 * kMiB, now), 80, 10);
  }
  EXPECT_NEAR(p50_ms(times, kQuick, 8 * kMiB, now), 80, 5);
}

TEST(LoadTimes, ALoadBehindOthersSaysTheSameRate) {
  LoadTimes times;
  const TimePoint now = Clock::now();
  for (int i = 0; i < 100; ++i) {
    LoadTimes::Load first(times, kQuick, 8 * kMiB), second(times, kQuick, 8 * kMiB);
    first.took(8 * kMiB, milliseconds(80), now);
    second.took(8 * kMiB, milliseconds(160), now);
  }
  EXPECT_NEAR(p50_ms(times, kQuick, 8 * kMiB, now), 80, 8);
}

TEST(LoadTimes, ALoadOfWhichLittleCameIsNoLessThanSlow) {
  LoadTimes times;
  const TimePoint now = Clock::now();
  LoadTimes::Load(times, kSlow, 8 * kMiB).took(1, milliseconds(100), now);
  EXPECT_GT(p90_ms(times, kSlow, 8 * kMiB, now), 800);
  EXPECT_LT(p90_ms(times, kSlow, 8 * kMiB, now), 3200);
}

TEST(LoadTimes, ALoadOfNothingSaysNothing) {
  LoadTimes times;
  const TimePoint now = Clock::now();
  const double guessed_ms = p90_ms(times, kQuick, kMiB, now);
  load(times, kQuick, 0, milliseconds(100), now);
  EXPECT_EQ(p90_ms(times, kQuick, kMiB, now), guessed_ms);
}

// How long until a forecast is made without what is known of the slow place.
seconds tried_after(LoadTimes& times, TimePoint now) {
  seconds waited{1};
  while (waited < seconds(1000) && p90_ms(times, kSlow, kMiB, now + waited) > 500) ++waited;
  return waited;
}

TEST(LoadTimes, SlowLoadsDoubleTheWaitUpToALimitAndAQuickOneEndsIt) {
  TimePoint now = Clock::now();
  for (const int slow : {1, 2, 3, 40}) {
    LoadTimes times;
    for (int i = 0; i < 500; ++i) load(times, kQuick, kMiB, milliseconds(10), now);
    for (int i = 0; i < slow; ++i) load(times, kSlow, kMiB, milliseconds(1000), now);
    // These keep the knowledge of all others fresh.
    for (int i = 0; i < 100; ++i) load(times, kQuick, kMiB, milliseconds(10), now + seconds(1));
    EXPECT_EQ(tried_after(times, now), seconds(slow == 40 ? 81 : (10 << slow) + 1)) << slow;
  }
  LoadTimes times;
  for (int i = 0; i < 500; ++i) load(times, kQuick, kMiB, milliseconds(10), now);
  for (int i = 0; i < 5; ++i) load(times, kSlow, kMiB, milliseconds(1000), now);
  load(times, kSlow, kMiB, milliseconds(10), now);
  EXPECT_EQ(tried_after(times, now), seconds(11));
  now += seconds(20);
  load(times, kSlow, kMiB, milliseconds(1000), now);
  EXPECT_EQ(tried_after(times, now), seconds(21));
}

TEST(LoadTimes, ASlowHolderIsTriedByOneForecastAfterAWhile) {
  LoadTimes times;
  TimePoint now = Clock::now();
  for (int i = 0; i < 20; ++i) load(times, kQuick, kMiB, milliseconds(10), now);
  load(times, kSlow, kMiB, milliseconds(1000), now);
  for (milliseconds wait = 2 * LoadTimes::kForgetMin; wait < LoadTimes::kForgetMax; wait *= 2) {
    EXPECT_GT(p90_ms(times, kSlow, kMiB, now + wait), 900);
    now += wait + seconds(1);
    for (int i = 0; i < 20; ++i) load(times, kQuick, kMiB, milliseconds(10), now);
    EXPECT_LT(p90_ms(times, kSlow, kMiB, now), 100);
    EXPECT_GT(p90_ms(times, kSlow, kMiB, now), 900) << "a second forecast without knowledge";
    load(times, kSlow, kMiB, milliseconds(1000), now);  // so the next wait is twice as long
  }
}

TEST(LoadTimes, AHolderThatIsQuickAgainIsSeenSo) {
  LoadTimes times;
  TimePoint now = Clock::now();
  for (int i = 0; i < 50; ++i) load(times, kQuick, kMiB, milliseconds(10), now);
  load(times, kSlow, kMiB, milliseconds(1000), now);
  for (int i = 0; i < 20; ++i) load(times, kSlow, kMiB, milliseconds(10), now);
  EXPECT_LT(p90_ms(times, kSlow, kMiB, now), 20);
}

TEST(LoadTimes, IfAllHoldersAreSlowOneForecastIsGuessed) {
  LoadTimes times;
  TimePoint now = Clock::now();
  for (int i = 0; i < 50; ++i) load(times, kSlow, kMiB, milliseconds(1000), now);
  now += LoadTimes::kForgetMax + seconds(1);
  EXPECT_LT(p90_ms(times, kSlow, kMiB, now), 100);
  EXPECT_GT(p90_ms(times, kNew, kMiB, now), 900);
}

TEST(LoadTimes, SlowLoadsFromAllHoldersDoubleTheWaitForOthers) {
  LoadTimes times;
  const TimePoint now = Clock::now();
  for (int i = 0; i < 10; ++i) load(times, kSlow, kMiB, milliseconds(1000), now);
  EXPECT_GT(p90_ms(times, kNew, kMiB, now + LoadTimes::kForgetMax), 500);
  EXPECT_LT(p90_ms(times, kNew, kMiB, now + LoadTimes::kForgetMax + seconds(1)), 100);
}

TEST(LoadTimes, AHolderIsSlowIfOthersAreQuicker) {
  LoadTimes times;
  const TimePoint now = Clock::now();
  for (int i = 0; i < 50; ++i) load(times, kQuick, kMiB, milliseconds(100), now);
  for (int i = 0; i < 5; ++i) load(times, kSlow, kMiB, milliseconds(300), now);
  for (int i = 0; i < 50; ++i) load(times, kQuick, kMiB, milliseconds(100), now + seconds(5));
  const TimePoint later = now + LoadTimes::kForgetMin + seconds(1);
  EXPECT_NEAR(p50_ms(times, kSlow, kMiB, later), 100, 20) << "it was not slow, so it is forgotten";
}

TEST(LoadTimes, TheForecastOfAKnownHolderLeavesTheTryToOthers) {
  LoadTimes times;
  const TimePoint now = Clock::now();
  for (int i = 0; i < 50; ++i) load(times, kQuick, kMiB, milliseconds(2), now);
  for (int i = 0; i < 3; ++i) load(times, kSlow, kMiB, milliseconds(1000), now);
  load(times, kQuick, kMiB, milliseconds(2), now + seconds(1));
  const TimePoint later = now + seconds(20);
  EXPECT_GT(p90_ms(times, kSlow, kMiB, later), 900);
  EXPECT_LT(p90_ms(times, kNew, kMiB, later), 100);
  EXPECT_GT(p90_ms(times, kNew, kMiB, later), 900);
}

TEST(LoadTimes, MoreBytesTakeNoLessTime) {
  LoadTimes times;
  const TimePoint now = Clock::now();
  for (int i = 0; i < 50; ++i) {
    load(times, kQuick, kMiB, milliseconds(100), now);
    load(times, kQuick, 16 * kMiB, milliseconds(20), now);
  }
  EXPECT_GE(p50_ms(times, kQuick, 64 * kMiB, now), p50_ms(times, kQuick, kMiB, now));
}

TEST(GetLoads, PagesThatComeInSlicesAreOneLoad) {
  LoadTimes times;
  TimePoint now = Clock::now();
  for (int i = 0; i < 50; ++i) load(times, kQuick, 4 * kMiB, milliseconds(10), now);
  GetLoads loads(times);
  loads.begin(kSlow, 4 * kMiB);
  now = Clock::now();
  for (int slice = 1; slice <= 8; ++slice)
    loads.came(kSlow, kMiB / 2, now + slice * milliseconds(300), false);
  EXPECT_GT(times.curve(kSlow, now).waiting_bytes, 0);
  loads.end();
  EXPECT_EQ(times.curve(kSlow, now).waiting_bytes, 0);
  EXPECT_NEAR(p90_ms(times, kSlow, 4 * kMiB, now), 2400, 200);
}

TEST(GetLoads, ALoadThatFailsSaysNothing) {
  LoadTimes times;
  const TimePoint now = Clock::now();
  for (int i = 0; i < 50; ++i) load(times, kQuick, kMiB, milliseconds(10), now);
  GetLoads loads(times);
  loads.begin(kSlow, kMiB);
  loads.came(kSlow, 1, now + seconds(1), false);  // the other pages are stale
  loads.end();
  EXPECT_LT(p90_ms(times, kSlow, kMiB, now), 20);
  loads.begin(kSlow, kMiB);
  loads.came(kSlow, kMiB / 2, now + seconds(1), true);
  loads.end();
  EXPECT_NEAR(p90_ms(times, kSlow, kMiB, now), 2000, 200);
}

TEST(GetLoads, AReadThatIsLateMakesTheLoadLateWhateverComesAfterIt) {
  LoadTimes times;
  const TimePoint now = Clock::now();
  for (int i = 0; i < 50; ++i) load(times, kQuick, kMiB, milliseconds(10), now);
  GetLoads loads(times);
  loads.begin(kSlow, kMiB);
  loads.came(kSlow, kMiB / 4, now + seconds(2), true);
  loads.came(kSlow, kMiB / 4, now + seconds(1), false);
  loads.end();
  EXPECT_NEAR(p90_ms(times, kSlow, kMiB, now), 4000, 400);
}

TEST(LoadForecast, PeersAreReadTogetherAndOurDiskBeforeThem) {
  LoadTimes times;
  const TimePoint now = Clock::now();
  for (int i = 0; i < 200; ++i) {
    load(times, {Source::disk}, kMiB, milliseconds(30), now);
    load(times, kQuick, kMiB, milliseconds(10), now);
    load(times, kSlow, kMiB, milliseconds(50), now);
  }
  LoadForecast forecast(times, now);
  forecast.add({Source::disk}, kMiB);
  EXPECT_NEAR(forecast.p50_us(), 30e3, 2e3);
  forecast.add(kSlow, kMiB);
  EXPECT_NEAR(forecast.p50_us(), 80e3, 4e3);
  forecast.add(kQuick, kMiB);
  EXPECT_NEAR(forecast.p50_us(), 80e3, 4e3);
  forecast.add(kSlow, kMiB);
  EXPECT_NEAR(forecast.p50_us(), 130e3, 8e3);
}

TEST(LoadForecast, ItIsNoLongerThanItsNumberCanTell) {
  LoadTimes times;
  const TimePoint now = Clock::now();
  for (int i = 0; i < 50; ++i) load(times, kSlow, 1, seconds(1000), now);
  LoadForecast forecast(times, now);
  forecast.add(kSlow, kMiB);
  EXPECT_EQ(forecast.p50_us(), UINT32_MAX);
  EXPECT_EQ(forecast.p90_us(), UINT32_MAX);
}

}  // namespace
}  // namespace peercached
