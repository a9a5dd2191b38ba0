// Pages that a full pool offers to others, and pages that a pool takes.
#include <chrono>
#include <thread>

#include "pool/page_fixture.h"
#include "pool/slot.h"

namespace peercached {
namespace {

constexpr uint32_t kMoved = 16 * kKiB;
constexpr uint8_t kMovesMax = 2;

class PoolMoving : public PageFixture {
 protected:
  void fill(uint64_t first, size_t bytes = 4 * kMiB) {
    for (uint64_t i = 0; i < bytes / kMoved; ++i) set(first + i, kMoved);
  }
  std::vector<Digest> coldest(uint64_t bytes) {
    std::vector<Digest> found;
    for (const IdlePage& page : pool->coldest(bytes, kMovesMax)) found.push_back(page.row.digest);
    return found;
  }
  void adopt(uint64_t number, const Adoption& adoption) {
    const Reservation reservation = reserve(number, kMoved);
    ASSERT_EQ(reservation.outcome, ReserveOutcome::reserved);
    RecordRow row;
    pool->commit({&reservation.page, 1}, {&row, 1}, adoption);
    unpin(reservation.page);
  }
};

TEST_F(PoolMoving, NothingIsOfferedWhileThereIsRoom) {
  open(4 * kMiB, 1, 1);
  fill(0, 2 * kMiB);
  EXPECT_TRUE(coldest(kMiB).empty());
  EXPECT_FALSE(coldest(3 * kMiB).empty());
}

TEST_F(PoolMoving, PagesThatEvictionTakesNextAreOfferedInItsOrder) {
  open(4 * kMiB, 1, 1);
  fill(0, 8 * kMiB);
  const std::vector<Digest> next = coldest(8 * kMoved);
  ASSERT_FALSE(next.empty());
  pool->evict_coldest(next.size() * kMoved);
  std::vector<uint8_t> present(next.size());
  pool->contains(next, false, present);
  EXPECT_EQ(present, std::vector<uint8_t>(next.size(), 0));
}

TEST_F(PoolMoving, PagesThatMoveElsewhereAreOfferedOnlyAfterTheirNextUse) {
  open(4 * kMiB, 1, 1);
  fill(0, 8 * kMiB);
  const std::vector<Digest> next = coldest(8 * kMoved);
  ASSERT_GT(next.size(), 1u);
  pool->set_moves(next, kMovesElsewhere);
  EXPECT_TRUE(coldest(8 * kMoved).empty());
  std::vector<uint8_t> present(1);
  pool->contains(std::span(next).first(1), true, present);
  const auto later = coldest(8 * kMoved);
  EXPECT_EQ(std::ranges::count(later, next[0]), 0) << "it is not cold any more";
  const auto all = coldest(8 * kMiB);
  EXPECT_EQ(std::ranges::count(all, next[0]), 1);
  EXPECT_EQ(std::ranges::count(all, next[1]), 0);
}

TEST_F(PoolMoving, PagesThatMovedTwiceStayUntilTheirNextUse) {
  open(4 * kMiB, 1, 1);
  fill(1000, 3 * kMiB);
  adopt(1, {.idle_ms = 0, .moves = 1});
  adopt(2, {.idle_ms = 0, .moves = 2});
  fill(2000, kMiB);
  const auto all = [&] { return coldest(8 * kMiB); };
  EXPECT_EQ(std::ranges::count(all(), digest_for(1)), 1);
  EXPECT_EQ(std::ranges::count(all(), digest_for(2)), 0);
  touch({2});
  EXPECT_EQ(std::ranges::count(all(), digest_for(2)), 1);
}

TEST_F(PoolMoving, PagesOfOtherPoolsAreCountedWhileTheyAreHere) {
  open(4 * kMiB, 1, 1);
  fill(1000, kMiB);
  adopt(1, {.idle_ms = 0, .moves = 1});
  adopt(2, {.idle_ms = 0, .moves = 0});
  adopt(3, {.idle_ms = 0, .moves = 0, .replica = true});
  touch({2});
  EXPECT_EQ(pool->stats().moved.keys, 2u);
  EXPECT_EQ(pool->stats().moved.bytes, 2 * kMoved);
  EXPECT_EQ(pool->replicas().keys, 1u);
  EXPECT_EQ(pool->replicas().bytes, kMoved);
  fill(2000, 8 * kMiB);
  EXPECT_EQ(pool->stats().moved.keys, 0u);
  EXPECT_EQ(pool->stats().moved.bytes, 0u);
  EXPECT_EQ(pool->replicas().keys, 0u);
}

TEST_F(PoolMoving, APageThatWasSetAnewStaysWhenItsOldRecordIsDropped) {
  open(4 * kMiB, 1, 1);
  const RecordRow old = set(1, kMoved);
  std::vector<RecordRow> rows;
  const Digest one[] = {digest_for(1)};
  pool->remove(one, rows);
  const RecordRow anew = set(1, kMoved);
  const std::vector<RecordRow> both = {old, anew};
  std::vector<RecordRow> withdrawn, dropped;
  pool->give_away({&old, 1}, false, withdrawn);
  pool->drop_given(both, dropped);
  EXPECT_TRUE(withdrawn.empty() && dropped.empty());
  pool->give_away(both, false, withdrawn);
  pool->drop_given(both, dropped);
  EXPECT_EQ(withdrawn.size(), 1u);
  EXPECT_EQ(dropped.size(), 1u);
}

TEST_F(PoolMoving, APageThatIsOfferedOrGivenAwayLeavesHoweverOftenItIsUsed) {
  open(4 * kMiB, 1, 1);
  const RecordRow page = set(1, kMoved);
  const auto leaves = [&] {
    touch({1});
    Pool::Here here{};
    pool->keeps({&page, 1}, {&here, 1});
    return here == Pool::Here::leaves;
  };
  pool->begin_offer({&page, 1});
  pool->begin_offer({&page, 1});
  EXPECT_TRUE(leaves());
  pool->end_offer({&page, 1});
  EXPECT_TRUE(leaves()) << "another offer is under way";
  pool->end_offer({&page, 1});
  EXPECT_FALSE(leaves());
  std::vector<RecordRow> rows;
  pool->give_away({&page, 1}, false, rows);
  EXPECT_TRUE(leaves());
  const Digest digests[] = {page.digest};
  EXPECT_TRUE(pool->idle_pages(digests).empty()) << "it is not offered again";
}

TEST_F(PoolMoving, AGivenPageCountsOnceHoweverItGoes) {
  open(4 * kMiB, 1, 1);
  const std::vector<RecordRow> pages = {set(1, kMoved), set(2, kMoved), set(3, kMoved)};
  std::vector<RecordRow> rows;
  pool->give_away(pages, false, rows);
  pool->give_away(pages, false, rows);
  EXPECT_EQ(rows.size(), 3u) << "they leave once";
  pool->evict({&pages[0].digest, 1});
  pool->remove({&pages[1].digest, 1}, rows);
  pool->drop_given(pages, rows);
  const PoolStats stats = pool->stats();
  EXPECT_EQ(stats.keys, 0u);
  EXPECT_EQ(stats.given, 3u);
  EXPECT_EQ(stats.evictions + stats.removals, 0u);
}

TEST_F(PoolMoving, EvictionSparesPagesWhileTheyAreOfferedUpToAQuarterOfThePool) {
  open(4 * kMiB, 1, 1);
  std::vector<RecordRow> offered, too_many;
  for (uint64_t i = 0; i < 32; ++i) offered.push_back(set(i, kMoved));
  for (uint64_t i = 100; i < 200; ++i) too_many.push_back(set(i, kMoved));
  const auto held = [&](const std::vector<RecordRow>& rows) {
    std::vector<Digest> digests;
    for (const RecordRow& row : rows) digests.push_back(row.digest);
    std::vector<uint8_t> present(rows.size());
    pool->contains(digests, false, present);
    return std::ranges::count(present, 1);
  };
  pool->begin_offer(offered);
  pool->begin_offer(too_many);
  fill(1000, 8 * kMiB);
  EXPECT_EQ(held(offered), 32);
  EXPECT_GT(held(too_many), 10);
  EXPECT_LE((held(offered) + held(too_many)) * kMoved, kMiB);

  std::vector<RecordRow> withdrawn;
  pool->give_away(std::span(offered).first(16), false, withdrawn);
  fill(2000, 17 * (kMoved + kKiB));
  EXPECT_EQ(held(offered), 16) << "pages that another pool has taken go first";
  const uint64_t lost_bytes = pool->stats().lost_bytes;
  pool->end_offer(offered);
  fill(3000, 32 * kMoved);
  EXPECT_EQ(held(offered), 0) << "the others go once they are offered no more";
  EXPECT_GE(pool->stats().lost_bytes - lost_bytes, 16 * kMoved);
  pool->end_offer(too_many);
}

TEST_F(PoolMoving, AnOfferedPageThatIsRemovedGoesAndASetAnewOneIsNotSpared) {
  open(4 * kMiB, 1, 1);
  const RecordRow old = set(1, kMoved);
  pool->begin_offer({&old, 1});
  std::vector<RecordRow> rows;
  const Digest one[] = {digest_for(1)};
  EXPECT_EQ(pool->remove(one, rows), 1u);
  set(1, kMoved);
  pool->end_offer({&old, 1});
  fill(1000, 8 * kMiB);
  std::vector<uint8_t> present(1);
  pool->contains(one, false, present);
  EXPECT_EQ(present[0], 0);
}

TEST_F(PoolMoving, AllOfAPoolMayBeOfferedAndPinnedAndSetsStillFindRoom) {
  open(kMiB, 1, 1);
  std::vector<RecordRow> offered;
  for (uint64_t i = 0; i < 8; ++i) offered.push_back(set(i, kMoved));
  std::vector<PinnedPage> pins;
  for (uint64_t i = 100; i < 200; ++i) {
    const Reservation reservation = reserve(i, kMoved);
    if (reservation.outcome != ReserveOutcome::reserved) break;
    if (i == 100) pool->begin_offer(offered);
    commit(reservation, i);
    pins.push_back(reservation.page);
  }
  EXPECT_EQ(pins.size(), pool->stats().classes[0].slots) << "they go when nothing else is left";
  pool->unpin(pins);
  pool->end_offer(offered);
}

TEST_F(PoolMoving, AKeptPageStaysUnlessItsKeepMayEndAndAPageGivenAwayIsNotKept) {
  open(4 * kMiB, 1, 1);
  const RecordRow page = set(1, kMoved);
  const Digest digests[] = {page.digest};
  std::vector<KeptPage> kept(1);
  pool->keep(digests, kept);
  std::vector<RecordRow> rows;
  pool->give_away({&page, 1}, true, rows);
  pool->drop_given({&page, 1}, rows);
  EXPECT_TRUE(rows.empty());
  EXPECT_EQ(pool->stats().keys, 1u);
  pool->give_away({&page, 1}, false, rows);
  pool->keep(digests, kept, true);
  EXPECT_FALSE(kept[0]);
  pool->drop_given({&page, 1}, rows);
  EXPECT_EQ(pool->stats().keys, 0u);
  EXPECT_EQ(pool->stats().pins, 0u);
}

TEST_F(PoolMoving, APageThatLeavesOrHasAnotherLengthIsNotKept) {
  open(4 * kMiB, 1, 1);
  std::vector<RecordRow> rows = {set(1, kMoved), set(2, kMoved), set(3, kMoved)};
  const Digest leaving[] = {digest_for(2)};
  pool->set_moves(leaving, kMovesElsewhere);
  rows[2].length = 2 * kMoved;
  rows.push_back(rows[0]);
  rows.back().digest = digest_for(4);
  std::vector<Pool::Here> here(rows.size());
  pool->keeps(rows, here);
  using enum Pool::Here;
  EXPECT_EQ(here, (std::vector{yes, leaves, leaves, no}));
}

TEST_F(PoolMoving, RoomTellsWhatIsFreeAndHowOldTheColdestPageIs) {
  open(4 * kMiB, 1, 1);
  const uint64_t before = pool->room().free_bytes;
  set(1, kMoved);
  std::this_thread::sleep_for(std::chrono::milliseconds(3));
  set(2, kMoved);
  const PoolRoom room = pool->room();
  EXPECT_GE(before - room.free_bytes, 2 * kMoved);
  EXPECT_GE(room.coldest_idle_ms, 2u);
}

TEST_F(PoolMoving, AllPagesThatMustGoForThoseOfAPeerCount) {
  open(4 * kMiB, 1, 1);
  set(1, kMoved);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  set(2, kMoved);
  const uint32_t of_both = pool->room(2 * kMoved).coldest_idle_ms;
  EXPECT_GE(pool->room(kMoved).coldest_idle_ms, of_both + 15);
}

TEST(PoolRoom, PagesFitIfThereIsRoomOrIfTheColdestPageIsMuchOlder) {
  const PoolRoom room{.free_bytes = 1000, .coldest_idle_ms = 1000};
  EXPECT_TRUE(room.fits(1000, 1'000'000, 1.2));
  EXPECT_FALSE(room.fits(1001, 1'000'000, 1.2));
  EXPECT_FALSE(room.fits(1001, 900, 1.2));
  EXPECT_TRUE(room.fits(1001, 900, 1.0));
  EXPECT_TRUE(room.fits(1001, 800, 1.2));
}

}  // namespace
}  // namespace peercached
