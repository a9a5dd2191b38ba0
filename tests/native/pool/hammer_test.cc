// Many threads on a far too small pool: pinned pages keep their bytes, and all counts match at the
// end. Most useful under ThreadSanitizer.
#include <atomic>
#include <random>
#include <thread>

#include "pool/page_fixture.h"

namespace peercached {
namespace {

class PoolHammer : public PageFixture {
 protected:
  static constexpr uint64_t kNumbers = 400;
  static uint32_t length_of(uint64_t number) {
    return number % 5 == 0 ? 100 * kKiB : number % 2 == 0 ? 16 * kKiB : 5000;
  }

  std::vector<uint64_t> some_numbers(std::mt19937_64& random) {
    const uint64_t first = random() % kNumbers;
    std::vector<uint64_t> numbers;
    for (uint64_t i = 0; i < 1 + random() % 8; ++i) numbers.push_back((first + i) % kNumbers);
    return numbers;
  }

  void set_some(std::mt19937_64& random) {
    const auto numbers = some_numbers(random);
    std::vector<PageRequest> requests;
    for (uint64_t number : numbers) requests.push_back({digest_for(number), length_of(number)});
    std::vector<Reservation> out(requests.size());
    pool->reserve(requests, nullptr, 1, out);
    std::vector<PinnedPage> fresh, all;
    for (size_t i = 0; i < out.size(); ++i) {
      if (out[i].outcome == ReserveOutcome::busy)
        pool->wait_settled(requests[i].digest, Deadline::after_ms(1));
      if (out[i].page) all.push_back(out[i].page);
      if (out[i].outcome != ReserveOutcome::reserved) continue;
      paint(out[i].page.payload(), requests[i].length, numbers[i]);
      fresh.push_back(out[i].page);
      fresh.back().checksum = numbers[i];
    }
    std::vector<RecordRow> rows(fresh.size());
    pool->commit(fresh, rows);
    sets += rows.size();
    pool->unpin(all);
  }

  void read_some(std::mt19937_64& random) {
    const auto numbers = some_numbers(random);
    std::vector<Digest> digests;
    for (uint64_t number : numbers) digests.push_back(digest_for(number));
    std::vector<PinnedPage> pages(digests.size());
    pool->pin(digests, nullptr, true, pages);
    for (size_t i = 0; i < pages.size(); ++i) {
      if (!pages[i]) continue;
      ++hits;
      if (!painted(pages[i].payload(), pages[i].length, numbers[i]) ||
          pages[i].length != length_of(numbers[i]) || pages[i].checksum != numbers[i])
        ++wrong;
    }
    pool->unpin(pages);
  }

  void work(uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int step = 0; step < 1500; ++step) {
      switch (random() % 16) {
        case 0: {
          std::vector<RecordRow> rows;
          withdrawn += remove(random() % kNumbers, rows);
          break;
        }
        case 1:
          touch(some_numbers(random));
          break;
        case 2:
          if (step % 20 == 0) {
            std::vector<RecordRow> rows;
            uint32_t slot = 0;
            while (pool->scan(slot, rows)) {
            }
          }
          break;
        case 3:
          pool->stats();
          break;
        case 4:
        case 5:
        case 6:
        case 7:
        case 8:
        case 9:
          set_some(random);
          break;
        default:
          read_some(random);
      }
    }
  }

  std::atomic<uint64_t> sets{0}, hits{0}, wrong{0}, withdrawn{0};
};

TEST_F(PoolHammer, ThreadsNeverSeeEachOthersBytes) {
  open(2 * kMiB, 0.9, 0.8);
  {
    std::vector<std::jthread> threads;
    for (uint64_t seed = 1; seed <= 4; ++seed) threads.emplace_back([this, seed] { work(seed); });
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(hits, 0u);
  const PoolStats stats = pool->stats();
  EXPECT_EQ(stats.pins, 0u);
  EXPECT_EQ(stats.reserved, 0u);
  EXPECT_EQ(stats.sets, sets);
  // The background may still be evicting. Once it rests, the sink has heard of all evictions.
  const auto told = [this] { return sets - withdrawn - evicted_rows().size(); };
  const Deadline deadline = Deadline::after_ms(10'000);
  while ((scanned().size() != pool->stats().keys || told() != pool->stats().keys) &&
         !deadline.passed()) {
    std::this_thread::yield();
  }
  EXPECT_EQ(scanned().size(), pool->stats().keys);
  EXPECT_EQ(told(), pool->stats().keys);
}

}  // namespace
}  // namespace peercached
