// The tier against a plain map, over random operations and restarts, then under many threads.
#include <random>
#include <thread>

#include "disk_fixture.h"

namespace peercached::disk {
namespace {

class DiskModel : public DiskFixture, public ::testing::WithParamInterface<unsigned> {
 protected:
  struct Page {
    uint32_t length = 0, version = 0;
    uint64_t ns = 0, epoch = 0;
  };
  static constexpr uint64_t kNumbers = 150, kNamespaces = 3;

  void put_one() {
    static constexpr uint32_t kLengths[] = {8, 100, 4096, 10'000, 16'000};
    const uint64_t number = random() % kNumbers;
    const auto known = pages.find(number);
    // Either the same content again, or a new one.
    Page page{kLengths[random() % std::size(kLengths)], 0, random() % kNamespaces, 0};
    page.version = ++versions % 256;
    page.epoch = epochs[page.ns];
    if (known != pages.end() && random() % 2) page = known->second;
    {
      std::lock_guard lock(mutex);
      std::erase(evicted, digest_for(number));
    }
    const PutOutcome outcome = put(number, page.length, page.version, page.ns, page.epoch);
    if (outcome == PutOutcome::present) {
      ASSERT_NE(known, pages.end());
      EXPECT_EQ(known->second.version, page.version);
    } else {
      ASSERT_EQ(outcome, PutOutcome::queued);
      pages[number] = page;
    }
  }

  void check(uint64_t number) {
    const auto known = pages.find(number);
    if (known == pages.end()) {
      EXPECT_FALSE(holds(number)) << number;
      return;
    }
    const Page& page = known->second;
    const PageStatus status = read(number, page.length, page.version);
    if (status == PageStatus::ok) return;
    EXPECT_EQ(status, PageStatus::absent);
    // An absent page must have been evicted, and the tier must have reported that.
    EXPECT_TRUE(eventually([&] { return evicted_digests().contains(digest_for(number)); }));
    pages.erase(known);
  }

  void clear_one() {
    const uint64_t ns = random() % kNamespaces;
    tier->drop_namespace(namespace_for(ns), ++epochs[ns]);
    std::erase_if(pages, [&](const auto& one) { return one.second.ns == ns; });
  }

  std::mt19937_64 random{GetParam()};
  std::map<uint64_t, Page> pages;
  std::array<uint64_t, kNamespaces> epochs{1, 1, 1};
  uint32_t versions = 0;
};

TEST_P(DiskModel, AgreesWithAMapOverRandomOperationsAndRestarts) {
  config.size_bytes = kMiB;
  config.segment_bytes = 64 * kKiB;
  config.sync = static_cast<SyncPolicy>(GetParam() % 3);
  open();
  for (int step = 0; step < 1500 && !HasFailure(); ++step) {
    const unsigned dice = static_cast<unsigned>(random() % 100);
    if (dice < 50) {
      put_one();
    } else if (dice < 70) {
      flush();
      check(random() % kNumbers);
    } else if (dice < 80) {
      const uint64_t number = random() % kNumbers;
      remove(number);
      pages.erase(number);
    } else if (dice < 98) {
      touch(random() % kNumbers);
    } else if (random() % 4 == 0) {
      clear_one();
    } else if (random() % 3 == 0) {
      flush();
      for (uint64_t number = 0; number < kNumbers; ++number) check(number);
      reopen();
      for (uint64_t number = 0; number < kNumbers; ++number) check(number);
    }
  }
  EXPECT_LE(tier->stats().used_bytes, config.size_bytes);
  EXPECT_EQ(tier->stats().reads_corrupt, 0u);
  EXPECT_GT(tier->stats().segments_evicted + tier->stats().recovery.segments, 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, DiskModel, ::testing::Range(0u, 6u));

class DiskHammer : public DiskFixture {};

// A page's bytes name the page, so any thread can tell right bytes from wrong ones.
TEST_F(DiskHammer, ManyThreadsSeeOnlyRightBytes) {
  constexpr uint64_t kNumbers = 60;
  constexpr uint32_t kLength = 12'000;
  config.size_bytes = kMiB;
  config.segment_bytes = 64 * kKiB;
  config.queue_bytes = 300'000;
  open();
  for (uint64_t number = 0; number < kNumbers; ++number) store(number, kLength);
  std::atomic<uint64_t> right{0}, wrong{0};
  const auto work = [&](unsigned seed) {
    std::mt19937_64 random(seed);
    std::vector<std::byte> dest(4 * kLength);
    for (int step = 0; step < 400; ++step) {
      const uint64_t number = random() % kNumbers;
      const uint32_t version = static_cast<uint32_t>(random() % 3);
      switch (random() % 8) {
        case 0:
          remove(number);
          break;
        case 1:
        case 2:
        case 3:
          put(number, kLength, version);
          if (random() % 8 == 0) tier->flush(Deadline::after_ms(20'000));
          break;
        default: {
          std::vector<DiskRead> batch;
          for (uint64_t i = 0; i < 4; ++i) {
            batch.push_back({digest_for((number + i) % kNumbers), dest.data() + i * kLength,
                             kLength, PageStatus::pending, 0});
          }
          // Some reads are abandoned midway.
          tier->read(batch, Deadline::after_ms(random() % 3 ? 20'000 : 0), random() % 2);
          for (uint64_t i = 0; i < 4; ++i) {
            if (batch[i].status != PageStatus::ok) continue;
            bool known = false;
            for (uint32_t v = 0; v < 3 && !known; ++v) {
              known =
                  std::memcmp(batch[i].dest, payload_of((number + i) % kNumbers, kLength, v).data(),
                              kLength) == 0;
            }
            ++(known ? right : wrong);
          }
        }
      }
    }
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(right, 50u);
  EXPECT_EQ(tier->stats().reads_corrupt, 0u);
}

}  // namespace
}  // namespace peercached::disk
