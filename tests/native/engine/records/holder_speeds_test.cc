// The choice among holders of a page: by speed, and not the same for all readers.
#include "engine/records/holder_speeds.h"

#include <gtest/gtest.h>

#include <random>

namespace peercached {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr HolderIndex kHere = 1, kThere = 2;
constexpr int kDigests = 10'000;

std::vector<Digest> all_digests() {
  std::mt19937_64 random(7);
  std::vector<Digest> some;
  for (int i = 0; i < kDigests; ++i) some.push_back({random(), random()});
  return some;
}

// The share of pages that are read from A, where both have them all.
double share_of_a(const HolderSpeeds& speeds, TimePoint now) {
  int of_a = 0;
  for (const Digest& digest : all_digests()) {
    of_a += speeds.cost(digest, kHere, now) < speeds.cost(digest, kThere, now) ? 1 : 0;
  }
  return static_cast<double>(of_a) / kDigests;
}

TEST(HolderSpeeds, EqualHoldersGetEqualShares) {
  HolderSpeeds speeds(1);
  TimePoint now = Clock::now();
  EXPECT_NEAR(share_of_a(speeds, now), 0.5, 0.03);
  for (int i = 0; i < 100; ++i) {
    speeds.note(kHere, 1 << 20, milliseconds(10), now);
    speeds.note(kThere, 1 << 20, milliseconds(10), now);
  }
  EXPECT_NEAR(share_of_a(speeds, now), 0.5, 0.03);
}

TEST(HolderSpeeds, ASlowHolderGetsAShareInverseToItsTime) {
  HolderSpeeds speeds(1);
  const TimePoint now = Clock::now();
  for (int i = 0; i < 200; ++i) {
    speeds.note(kHere, 1 << 20, milliseconds(30), now);
    speeds.note(kThere, 1 << 20, milliseconds(10), now);
  }
  EXPECT_NEAR(share_of_a(speeds, now), 0.25, 0.03);
}

TEST(HolderSpeeds, SmallReadsAreNotTakenForSlowOnes) {
  HolderSpeeds speeds(1);
  const TimePoint now = Clock::now();
  for (int i = 0; i < 200; ++i) {
    speeds.note(kHere, 4 << 10, milliseconds(1), now);     // 4 MB/s, as small reads are
    speeds.note(kThere, 64 << 20, milliseconds(10), now);  // 6.7 GB/s
  }
  EXPECT_NEAR(share_of_a(speeds, now), 0.5, 0.03);
}

TEST(HolderSpeeds, ReadersChooseDifferentHoldersOfThePage) {
  const HolderSpeeds here(1), there(2);
  const TimePoint now = Clock::now();
  int both_of_a = 0;
  for (const Digest& digest : all_digests()) {
    const bool a_here = here.cost(digest, kHere, now) < here.cost(digest, kThere, now);
    const bool a_there = there.cost(digest, kHere, now) < there.cost(digest, kThere, now);
    both_of_a += a_here && a_there ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(both_of_a) / kDigests, 0.25, 0.03);
}

TEST(HolderSpeeds, AHolderOfManyPagesOfOneReadGivesFewThatOthersHave) {
  const HolderSpeeds speeds(1);
  const TimePoint now = Clock::now();
  double here = 0, there = 0;
  for (const Digest& digest : all_digests()) {
    const bool first =
        speeds.cost(digest, kHere, now, here) < speeds.cost(digest, kThere, now, there);
    ++(first ? here : there);
  }
  EXPECT_NEAR(here, there, 10);
  int few = 0;
  for (const Digest& digest : all_digests())
    few += speeds.cost(digest, kHere, now, 100) < speeds.cost(digest, kThere, now, 0) ? 1 : 0;
  EXPECT_LT(few, kDigests / 100);
}

TEST(HolderSpeeds, CrowdedIsFarSlowerThanUsual) {
  HolderSpeeds speeds(1);
  EXPECT_FALSE(speeds.crowded(1 << 20, seconds(10))) << "it is not known what is usual";
  for (int i = 0; i < 100; ++i) speeds.note(kHere, 1 << 20, milliseconds(10), Clock::now());
  EXPECT_FALSE(speeds.crowded(1 << 20, milliseconds(20))) << "two readers";
  EXPECT_TRUE(speeds.crowded(1 << 20, milliseconds(30)));
  EXPECT_FALSE(speeds.crowded(4 << 20, seconds(1)));
  for (int i = 0; i < 100; ++i)
    speeds.note(kHere, 1 << 10, std::chrono::microseconds(10), Clock::now());
  EXPECT_FALSE(speeds.crowded(1 << 10, milliseconds(1))) << "nobody waits for long";
}

TEST(HolderSpeeds, ManyCrowdsDoNotBecomeUsual) {
  HolderSpeeds speeds(1);
  for (int i = 0; i < 10; ++i) speeds.note(kHere, 8 << 20, milliseconds(160), Clock::now());
  // The first slices were never read without a crowd. Larger READs tell what they should take.
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(speeds.crowded(512 << 10, milliseconds(70)));
    speeds.note(kHere, 512 << 10, milliseconds(70), Clock::now());
    speeds.note(kHere, 8 << 20, milliseconds(1100), Clock::now());
  }
  EXPECT_FALSE(speeds.crowded(512 << 10, milliseconds(25)));
  // A network that stays slow is usual at last.
  for (int i = 0; i < 20'000; ++i) speeds.note(kHere, 8 << 20, milliseconds(1100), Clock::now());
  for (int i = 0; i < 20'000; ++i) speeds.note(kHere, 512 << 10, milliseconds(70), Clock::now());
  EXPECT_FALSE(speeds.crowded(512 << 10, milliseconds(70)));
}

TEST(HolderSpeeds, AHolderIsKnownToBeQuickForAMoment) {
  HolderSpeeds speeds(1);
  const TimePoint now = Clock::now();
  EXPECT_FALSE(speeds.quick(kHere, now));
  speeds.note(kHere, 1 << 20, milliseconds(10), now);
  EXPECT_TRUE(speeds.quick(kHere, now));
  EXPECT_FALSE(speeds.quick(kHere, now + HolderSpeeds::kMoment));
  for (int i = 0; i < 4; ++i) speeds.note(kThere, 1 << 20, milliseconds(80), now);
  EXPECT_FALSE(speeds.quick(kThere, now));
}

TEST(HolderSpeeds, ASlowHolderIsTriedAgainLater) {
  HolderSpeeds speeds(1);
  const TimePoint now = Clock::now();
  for (int i = 0; i < 100; ++i) {
    speeds.note(kHere, 1 << 20, seconds(1), now);
    for (int k = 0; k < 10; ++k) speeds.note(kThere, 1 << 20, milliseconds(1), now);
  }
  EXPECT_LT(share_of_a(speeds, now), 0.1);
  EXPECT_NEAR(share_of_a(speeds, now + HolderSpeeds::kForget + seconds(1)), 0.5, 0.03);
}

TEST(HolderSpeeds, TakesNoPartInWhatCannotBe) {
  HolderSpeeds speeds(1);
  const TimePoint now = Clock::now();
  speeds.note(kNoHolder, 1 << 20, milliseconds(1), now);
  speeds.note(kHere, 0, milliseconds(1), now);
  speeds.note(kHere, 1 << 20, milliseconds(0), now);
  EXPECT_EQ(speeds.slowness(kNoHolder, now), 1);
  EXPECT_EQ(speeds.slowness(kHere, now), 1);
}

}  // namespace
}  // namespace peercached
