#include "transfer/rdma/in_flight.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

namespace peercached::rdma {
namespace {

using State = InFlight::Place::State;
constexpr uint64_t kAll = InFlight::kBytesMax;

struct Sender {
  Sender() { place.event_fd = ::eventfd(0, EFD_NONBLOCK); }
  ~Sender() { ::close(place.event_fd); }
  bool woken() {
    uint64_t count;
    return ::read(place.event_fd, &count, sizeof count) == sizeof count;
  }
  InFlight::Place place;
};

TEST(InFlight, WaitersGetRoomInTheirOrder) {
  InFlight rail;
  Sender busy, first, second;
  ASSERT_TRUE(rail.take(busy.place, kAll));
  EXPECT_FALSE(rail.take(first.place, kAll));
  EXPECT_FALSE(rail.take(second.place, kAll / 4));
  EXPECT_FALSE(rail.take(first.place, kAll)) << "asking again is not asking twice";
  rail.give_back(kAll / 2);
  EXPECT_FALSE(first.woken()) << "room for half of it only";
  EXPECT_FALSE(second.woken()) << "there would be room, but another was first";
  rail.give_back(kAll / 2);
  EXPECT_TRUE(first.woken());
  EXPECT_FALSE(second.woken());
  EXPECT_TRUE(rail.take(first.place, kAll));
  rail.give_back(kAll);
  EXPECT_TRUE(second.woken());
  EXPECT_TRUE(rail.take(second.place, kAll / 4));
}

TEST(InFlight, NewcomersQueueBehindWaiters) {
  InFlight rail;
  Sender busy, waiting, small;
  ASSERT_TRUE(rail.take(busy.place, kAll / 2));
  EXPECT_FALSE(rail.take(waiting.place, kAll));
  EXPECT_FALSE(rail.take(small.place, 1));
  rail.leave(waiting.place);
  EXPECT_TRUE(small.woken()) << "nobody is before it any more";
  EXPECT_TRUE(rail.take(small.place, 1));
}

TEST(InFlight, GrantOfALeavingSenderGoesToTheNext) {
  InFlight rail;
  Sender busy, leaving, next;
  ASSERT_TRUE(rail.take(busy.place, kAll));
  EXPECT_FALSE(rail.take(leaving.place, kAll));
  EXPECT_FALSE(rail.take(next.place, kAll));
  rail.give_back(kAll);
  EXPECT_EQ(leaving.place.state, State::granted);
  rail.leave(leaving.place);
  EXPECT_TRUE(next.woken());
  EXPECT_TRUE(rail.take(next.place, kAll));
  rail.leave(leaving.place);  // the grant has already moved on
  EXPECT_FALSE(rail.take(leaving.place, 1));
  rail.leave(leaving.place);
}

TEST(InFlight, ConcurrentSendersNeverExceedTheLimit) {
  InFlight rail;
  std::atomic<uint64_t> under_way{0}, most{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      Sender sender;
      const uint64_t bytes = kAll / (2 + t % 3);
      for (int turn = 0; turn < 2000; ++turn) {
        while (!rail.take(sender.place, bytes)) {
          if (turn % 7 == 0) rail.leave(sender.place);
          std::this_thread::yield();
        }
        const uint64_t now = under_way += bytes;
        for (uint64_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
        }
        under_way -= bytes;
        rail.give_back(bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, kAll);
  Sender last;
  EXPECT_TRUE(rail.take(last.place, kAll)) << "all of it came back";
}

}  // namespace
}  // namespace peercached::rdma
