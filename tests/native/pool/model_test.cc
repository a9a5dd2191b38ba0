// The pool against a plain map, over random operations. It may drop a page only if it reports that.
#include <algorithm>
#include <random>
#include <set>

#include "pool/page_fixture.h"

namespace peercached {
namespace {

class PoolModel : public PageFixture, public ::testing::WithParamInterface<int> {
 protected:
  struct Page {
    RecordRow row;
    uint64_t number = 0;
    uint32_t pool_slot = 0;
  };
  struct Pin {
    PinnedPage page;
    uint64_t number = 0;
  };

  // Applies the evictions reported to the sink since the last call.
  void apply_evictions() {
    const auto rows = evicted_rows();
    for (; evictions_seen < rows.size(); ++evictions_seen) forget(rows[evictions_seen]);
  }
  void forget(const RecordRow& row) {
    const auto page = pages.find(row.digest);
    ASSERT_NE(page, pages.end()) << "withdrew what was not there";
    EXPECT_EQ(page->second.row.offset, row.offset);
    EXPECT_GT(row.generation, page->second.row.generation);
    EXPECT_EQ(row.flags, kRecordWithdraw);
    pages.erase(page);
  }
  bool pinned(uint64_t number) const {
    return std::ranges::any_of(pins, [&](const Pin& one) { return one.number == number; });
  }

  void set_some() {
    static constexpr uint32_t kLengths[] = {1, 4096, 16384, 16385, 50'000, 131072, 400'000};
    std::vector<PageRequest> requests;
    std::vector<uint64_t> numbers;
    const size_t count = 1 + random() % 8;
    const uint32_t pool_slot = random() % 3;
    for (size_t i = 0; i < count; ++i) {
      const uint64_t number = random() % kNumbers;
      if (std::ranges::find(numbers, number) != numbers.end()) continue;
      numbers.push_back(number);
      requests.push_back({digest_for(number), kLengths[random() % std::size(kLengths)]});
    }
    const Digest parent = digest_for(random() % kNumbers);
    std::vector<Reservation> out(requests.size());
    pool->reserve(requests, random() % 2 ? &parent : nullptr, pool_slot, out);
    apply_evictions();
    for (size_t i = 0; i < out.size(); ++i) {
      const auto page = pages.find(requests[i].digest);
      switch (out[i].outcome) {
        case ReserveOutcome::reserved: {
          ASSERT_EQ(page, pages.end());
          if (random() % 10 == 0) {
            pool->abort({&out[i].page, 1});
            break;
          }
          const RecordRow row = commit(out[i], numbers[i]);
          pages[row.digest] = {row, numbers[i], pool_slot};
          pins.push_back({out[i].page, numbers[i]});
          break;
        }
        case ReserveOutcome::present:
          ASSERT_NE(page, pages.end());
          EXPECT_EQ(page->second.row.length, requests[i].length);
          pins.push_back({out[i].page, numbers[i]});
          break;
        case ReserveOutcome::busy:
          ASSERT_NE(page, pages.end());
          EXPECT_NE(page->second.row.length, requests[i].length);
          EXPECT_TRUE(pinned(numbers[i]));
          break;
        case ReserveOutcome::newer:
          FAIL() << "only for copies of other nodes";
        case ReserveOutcome::no_space:
          EXPECT_FALSE(pins.empty()) << "an unpinned pool always has room";
          break;
        case ReserveOutcome::too_large:
          FAIL() << requests[i].length;
      }
    }
  }

  void pin_one() {
    const uint64_t number = random() % kNumbers;
    const PinnedPage page = pin(number);
    const auto known = pages.find(digest_for(number));
    ASSERT_EQ(static_cast<bool>(page), known != pages.end());
    if (!page) return;
    EXPECT_EQ(page.header - pool->base(), static_cast<ptrdiff_t>(known->second.row.offset));
    EXPECT_TRUE(painted(page.payload(), page.length, number));
    pins.push_back({page, number});
  }

  void unpin_one() {
    if (pins.empty()) return;
    std::swap(pins[random() % pins.size()], pins.back());
    const Pin last = pins.back();
    pins.pop_back();
    EXPECT_TRUE(painted(last.page.payload(), last.page.length, last.number)) << "while pinned";
    unpin(last.page);
  }

  void remove_one() {
    std::vector<RecordRow> rows;
    remove(random() % kNumbers, rows);
    for (const RecordRow& row : rows) forget(row);
  }

  void sweep() {
    const uint32_t pool_slot = random() % 3;
    std::vector<RecordRow> rows;
    const size_t swept = pool->sweep_namespace(pool_slot, 20, rows);
    EXPECT_EQ(swept, rows.size());
    for (const RecordRow& row : rows) {
      EXPECT_EQ(pages.at(row.digest).pool_slot, pool_slot);
      forget(row);
    }
    if (swept == 20) return;
    for (const auto& [digest, page] : pages) EXPECT_NE(page.pool_slot, pool_slot);
  }

  void check_all() {
    const auto found = scanned();
    ASSERT_EQ(found.size(), pages.size());
    uint64_t payload_bytes = 0;
    std::vector<std::pair<uint64_t, uint64_t>> places;
    for (const auto& [digest, page] : pages) {
      ASSERT_TRUE(found.contains(digest));
      const RecordRow& row = found.at(digest);
      EXPECT_EQ(row.generation, page.row.generation);
      EXPECT_EQ(row.length, page.row.length);
      payload_bytes += row.length;
      places.emplace_back(row.offset, row.offset + sizeof(SlotHeader) + row.length);
      EXPECT_TRUE(painted(pool->base() + row.offset + sizeof(SlotHeader), row.length, page.number));
    }
    std::ranges::sort(places);
    for (size_t i = 1; i < places.size(); ++i) EXPECT_LE(places[i - 1].second, places[i].first);
    const PoolStats stats = pool->stats();
    EXPECT_EQ(stats.keys, pages.size());
    EXPECT_EQ(stats.payload_bytes, payload_bytes);
    EXPECT_EQ(stats.pins, pins.size());
    EXPECT_EQ(stats.reserved, 0u);
    std::set<uint32_t> slots_pinned;
    for (const Pin& one : pins) slots_pinned.insert(one.page.slot);
    uint64_t used_bytes = 0, pinned = 0;
    for (const auto& one : stats.classes) {
      EXPECT_LE(one.used, one.slots);
      EXPECT_LE(one.pinned, one.used);
      used_bytes += one.used * one.stride_bytes;
      pinned += one.pinned;
    }
    EXPECT_EQ(pinned, slots_pinned.size());
    EXPECT_EQ(used_bytes, stats.used_bytes);
    EXPECT_LE(used_bytes, stats.capacity_bytes);
  }

  static constexpr uint64_t kNumbers = 300;
  std::mt19937_64 random{static_cast<uint64_t>(GetParam())};
  std::map<Digest, Page> pages;
  std::vector<Pin> pins;
  size_t evictions_seen = 0;
};

TEST_P(PoolModel, AgreesWithAMapOverRandomOperations) {
  open(4 * kMiB);
  for (int step = 0; step < 3000 && !HasFailure(); ++step) {
    // Pins accumulate in some phases and are released in others.
    const unsigned calm = step / 300 % 2 ? 4 : 1;
    switch (random() % 12) {
      case 0:
      case 1:
      case 2:
        set_some();
        break;
      case 3:
        pin_one();
        break;
      case 4:
        remove_one();
        break;
      case 5:
        if (random() % 10 == 0) sweep();
        break;
      case 6:
        touch({random() % kNumbers, random() % kNumbers, random() % kNumbers});
        break;
      default:
        for (unsigned i = 0; i < calm; ++i) unpin_one();
    }
    if (step % 100 == 0) check_all();
  }
  while (!pins.empty()) unpin_one();
  check_all();
  std::vector<RecordRow> rows;
  for (uint64_t number = 0; number < kNumbers; ++number) remove(number, rows);
  EXPECT_EQ(pool->stats().used_bytes, 0u);
  set(1, 4 * kMiB - 4096);  // succeeds only if all free runs have merged
}

INSTANTIATE_TEST_SUITE_P(Seeds, PoolModel, ::testing::Range(1, 7));

}  // namespace
}  // namespace peercached
