#include "transfer/tcp/life_signs.h"

#include <gtest/gtest.h>

namespace peercached::tcp {
namespace {

using std::chrono::seconds;

const TimePoint kNow = Clock::now();
constexpr LifeSign kSign{7, 1, 99, 1, 0};

TEST(LifeSigns, ExpiredOwnSignIsEmpty) {
  LifeSigns signs;
  EXPECT_EQ(signs.own(kNow), LifeSign{});
  signs.say(kSign, kNow + seconds(1));
  EXPECT_EQ(signs.own(kNow), kSign);
  EXPECT_EQ(signs.own(kNow + seconds(1)), LifeSign{});
}

TEST(LifeSigns, TheLastSignOfEachIsTakenOnce) {
  LifeSigns signs;
  signs.hear(1, kSign, kNow, false);
  signs.hear(2, kSign, kNow + seconds(1), true);
  LifeSign later = kSign;
  later.view_number = 8;
  signs.hear(2, later, kNow + seconds(2), false);
  auto heard = signs.take();
  ASSERT_EQ(heard.size(), 2u);
  if (heard[0].who != 1) std::swap(heard[0], heard[1]);
  EXPECT_EQ(heard[0].answered, TimePoint::min());
  EXPECT_EQ(heard[0].at, kNow);
  EXPECT_EQ(heard[1].sign, later);
  EXPECT_EQ(heard[1].at, kNow + seconds(2));
  EXPECT_EQ(heard[1].answered, kNow + seconds(1));
  EXPECT_TRUE(signs.take().empty());
}

TEST(LifeSigns, EmptySignIsIgnored) {
  LifeSigns signs;
  signs.hear(1, LifeSign{}, kNow, false);
  EXPECT_TRUE(signs.take().empty());
}

TEST(LifeSigns, SignsAreBoundedByTheMembersOfAView) {
  LifeSigns signs;
  for (Incarnation who = 1; who <= 5000; ++who) signs.hear(who, kSign, kNow, false);
  EXPECT_EQ(signs.take().size(), 4096u);
}

}  // namespace
}  // namespace peercached::tcp
