// A slot's life: free -> reserved -> committed -> (evicted | removed) -> free.
#include <chrono>
#include <thread>

#include "pool/page_fixture.h"
#include "pool/slot_header.h"

namespace peercached {
namespace {

class PoolLifecycle : public PageFixture {
 protected:
  static PageWanted wanted_of(const RecordRow& row) {
    return {row.offset, row.digest, row.generation, row.length};
  }
  PinnedPage pin_recorded(const PageWanted& wanted) {
    PinnedPage page;
    pool->pin_records({&wanted, 1}, {&page, 1});
    return page;
  }
};

TEST_F(PoolLifecycle, CommittedPageIsFoundWithItsBytesAndRecord) {
  open(4 * kMiB);
  const RecordRow row = set(1, 10'000);
  EXPECT_EQ(row.digest, digest_for(1));
  EXPECT_EQ(row.length, 10'000u);
  EXPECT_EQ(row.holder, kSelfHolder);
  EXPECT_EQ(row.flags, kRecordResident);

  const PinnedPage page = pin(1);
  ASSERT_TRUE(page);
  EXPECT_TRUE(painted(page.payload(), page.length, 1));
  EXPECT_EQ(page.checksum, checksum(page.payload(), page.length));
  EXPECT_EQ(row.check, static_cast<uint32_t>(page.checksum));
  EXPECT_EQ(page.header, pool->base() + row.offset);
  unpin(page);
}

TEST_F(PoolLifecycle, HeaderNamesThePageAndIsSealed) {
  open(4 * kMiB);
  const RecordRow row = set(1, 5000);
  SlotHeader header;
  std::memcpy(&header, pool->base() + row.offset, sizeof header);
  EXPECT_TRUE(sealed(header));
  EXPECT_EQ(header.digest, digest_for(1));
  EXPECT_EQ(header.incarnation, kIncarnation);
  EXPECT_EQ(header.generation, row.generation);
  EXPECT_EQ(header.length, 5000u);
  EXPECT_EQ(static_cast<uint32_t>(header.checksum), row.check);
}

TEST_F(PoolLifecycle, ReservedPageIsInvisibleEverywhere) {
  open(4 * kMiB);
  const Reservation reservation = reserve(1, 4096);
  ASSERT_EQ(reservation.outcome, ReserveOutcome::reserved);
  EXPECT_FALSE(pin(1));
  EXPECT_FALSE(held(1));
  EXPECT_TRUE(scanned().empty());
  std::vector<RecordRow> rows;
  EXPECT_EQ(remove(1, rows), 0u);
  EXPECT_EQ(pool->sweep_namespace(1, 10, rows), 0u);
  const uint64_t offset = static_cast<uint64_t>(reservation.page.header - pool->base());
  EXPECT_FALSE(pin_recorded({offset, digest_for(1), 0, 4096}));
  SlotHeader header;
  std::memcpy(&header, reservation.page.header, sizeof header);
  EXPECT_FALSE(sealed(header));
  EXPECT_EQ(pool->stats().keys, 0u);
  EXPECT_EQ(pool->stats().reserved, 1u);

  commit(reservation, 1);
  EXPECT_TRUE(held(1));
  unpin(reservation.page);
}

TEST_F(PoolLifecycle, AbortedReservationLeavesNothing) {
  open(4 * kMiB);
  const Reservation reservation = reserve(1, 4096);
  pool->abort({&reservation.page, 1});
  EXPECT_FALSE(held(1));
  EXPECT_EQ(pool->stats().used_bytes, 0u);
  EXPECT_EQ(pool->stats().reserved, 0u);
  set(1, 4096);
  EXPECT_TRUE(held(1));
}

TEST_F(PoolLifecycle, SecondSetterOfAReservedPageIsToldToWait) {
  open(4 * kMiB);
  const Reservation first = reserve(1, 4096);
  EXPECT_EQ(reserve(1, 4096).outcome, ReserveOutcome::busy);
  EXPECT_EQ(reserve(1, 8192).outcome, ReserveOutcome::busy);
  EXPECT_FALSE(pool->wait_settled(digest_for(1), Deadline::after_ms(1)));

  std::thread committer([&] { commit(first, 1); });
  EXPECT_TRUE(pool->wait_settled(digest_for(1), Deadline::after_ms(60'000)));
  committer.join();
  const Reservation again = reserve(1, 4096);
  EXPECT_EQ(again.outcome, ReserveOutcome::present);
  EXPECT_TRUE(painted(again.page.payload(), 4096, 1));
  unpin(again.page);
  unpin(first.page);
}

TEST_F(PoolLifecycle, DuplicateInOneBatchIsBusyAndDoesNotBlock) {
  open(4 * kMiB);
  const std::vector<PageRequest> requests(2, {digest_for(1), 4096});
  std::vector<Reservation> out(2);
  pool->reserve(requests, nullptr, 1, out);
  EXPECT_EQ(out[0].outcome, ReserveOutcome::reserved);
  EXPECT_EQ(out[1].outcome, ReserveOutcome::busy);
  pool->abort({&out[0].page, 1});
}

TEST_F(PoolLifecycle, PageOfAnotherLengthReplacesTheOldOne) {
  open(4 * kMiB);
  const RecordRow old = set(1, 4096);
  const Reservation longer = reserve(1, 9000);
  ASSERT_EQ(longer.outcome, ReserveOutcome::reserved);
  ASSERT_EQ(evicted_rows().size(), 1u);
  EXPECT_EQ(evicted_rows()[0].digest, digest_for(1));
  EXPECT_EQ(evicted_rows()[0].flags, kRecordWithdraw);
  EXPECT_GT(evicted_rows()[0].generation, old.generation);
  const RecordRow fresh = commit(longer, 1);
  EXPECT_GT(fresh.generation, evicted_rows()[0].generation);
  unpin(longer.page);
  const PinnedPage page = pin(1);
  EXPECT_EQ(page.length, 9000u);
  unpin(page);
  // A copy of a page that was set earlier replaces nothing.
  const PageRequest copied{digest_for(1), 4096};
  Reservation copy;
  pool->reserve({&copied, 1}, nullptr, namespace_slot, {&copy, 1}, Replace::no);
  EXPECT_EQ(copy.outcome, ReserveOutcome::newer);
  EXPECT_FALSE(copy.page);
  EXPECT_TRUE(held(1));
}

TEST_F(PoolLifecycle, PinnedPageOfAnotherLengthIsNotReplaced) {
  open(4 * kMiB);
  set(1, 4096);
  const PinnedPage page = pin(1);
  EXPECT_EQ(reserve(1, 9000).outcome, ReserveOutcome::busy);
  EXPECT_TRUE(painted(page.payload(), 4096, 1));
  unpin(page);
  EXPECT_EQ(set(1, 9000).length, 9000u);
}

TEST_F(PoolLifecycle, PageOfAnotherLengthIsReplaceableOnceItsReadersAreDone) {
  open(4 * kMiB);
  set(1, 4096);
  const PinnedPage page = pin(1);
  EXPECT_TRUE(pool->wait_replaceable(digest_for(1), 4096, Deadline::after_ms(0)));
  EXPECT_TRUE(pool->wait_replaceable(digest_for(2), 9000, Deadline::after_ms(0)));
  EXPECT_FALSE(pool->wait_replaceable(digest_for(1), 9000, Deadline::after_ms(5)));
  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    unpin(page);
  });
  EXPECT_TRUE(pool->wait_replaceable(digest_for(1), 9000, Deadline::after_ms(20'000)));
  reader.join();
  EXPECT_EQ(set(1, 9000).length, 9000u);
}

TEST_F(PoolLifecycle, RemovedPinnedPageIsInvisibleAndFreedByTheLastUnpin) {
  open(4 * kMiB);
  const RecordRow row = set(1, 4096);
  const PinnedPage one = pin(1), two = pin(1);
  std::vector<RecordRow> rows;
  ASSERT_EQ(remove(1, rows), 1u);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].flags, kRecordWithdraw);
  EXPECT_GT(rows[0].generation, row.generation);

  EXPECT_FALSE(held(1));
  EXPECT_FALSE(pin(1));
  EXPECT_FALSE(pin_recorded(wanted_of(row)));
  EXPECT_TRUE(scanned().empty());
  SlotHeader header;
  std::memcpy(&header, one.header, sizeof header);
  EXPECT_FALSE(sealed(header));
  EXPECT_TRUE(painted(one.payload(), 4096, 1)) << "the pin protects the bytes";

  // Set again while the old bytes are pinned: the page gets another slot.
  const RecordRow again = set(1, 4096);
  EXPECT_NE(again.offset, row.offset);

  EXPECT_EQ(pool->stats().used_bytes, 2 * (64u + 4096u));
  unpin(one);
  EXPECT_EQ(pool->stats().used_bytes, 2 * (64u + 4096u));
  unpin(two);
  EXPECT_EQ(pool->stats().used_bytes, 64u + 4096u);
}

TEST_F(PoolLifecycle, PageRemovedWhilePinnedIsWithdrawnAfterItsRecord) {
  open(4 * kMiB);
  const Reservation first = reserve(1, 4096), second = reserve(2, 4096);
  const RecordRow row = commit(first, 1);
  commit(second, 2);
  const PinnedPage pins[] = {first.page, second.page};
  std::vector<RecordRow> again;
  pool->withdrawals_of(pins, again);
  EXPECT_TRUE(again.empty()) << "nothing was removed";

  std::vector<RecordRow> removed;
  ASSERT_EQ(remove(1, removed), 1u);
  // The withdrawal of the earlier page must not hit a later page of the same key.
  const RecordRow later = set(1, 4096);
  pool->withdrawals_of(pins, again);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].digest, row.digest);
  EXPECT_EQ(again[0].flags, kRecordWithdraw);
  EXPECT_EQ(again[0].generation, removed[0].generation);
  EXPECT_GT(again[0].generation, row.generation);
  EXPECT_LT(again[0].generation, later.generation);
  pool->unpin(pins);
}

TEST_F(PoolLifecycle, RecordPinsOnlyItsOwnUseOfTheSlot) {
  open(4 * kMiB);
  const RecordRow row = set(1, 4096);
  const PageWanted right = wanted_of(row);
  const PinnedPage page = pin_recorded(right);
  EXPECT_TRUE(page);
  unpin(page);
  EXPECT_FALSE(pin_recorded({right.offset, right.digest, right.generation + 1, right.length}));
  EXPECT_FALSE(pin_recorded({right.offset + 64, right.digest, right.generation, right.length}));
  EXPECT_FALSE(pin_recorded({right.offset, digest_for(2), right.generation, right.length}));
  EXPECT_FALSE(pin_recorded({UINT64_MAX, right.digest, right.generation, right.length}));
  EXPECT_FALSE(pin_recorded({right.offset, right.digest, right.generation, right.length - 1}));

  std::vector<RecordRow> rows;
  remove(1, rows);
  set(1, 4096);
  EXPECT_FALSE(pin_recorded(wanted_of(row)));
}

TEST_F(PoolLifecycle, GenerationsNeverRepeatAndRowsCarryThem) {
  open(4 * kMiB);
  Generation last = 0;
  std::vector<RecordRow> rows;
  for (uint64_t i = 0; i < 100; ++i) {
    const RecordRow row = set(i % 3, 4096);
    EXPECT_GT(row.generation, last);
    last = row.generation;
    remove(i % 3, rows);
    EXPECT_GT(rows.back().generation, last);
    last = rows.back().generation;
  }
  EXPECT_GT(pool->next_generation(), last);
}

TEST_F(PoolLifecycle, RecordOfAPinnedPageIsThatOfItsCommit) {
  open(4 * kMiB);
  const RecordRow row = set(1, 4096);
  PinnedPage page = pin(1);
  RecordRow same;
  pool->rows_of({&page, 1}, {&same, 1});
  EXPECT_EQ(same.generation, row.generation);
  EXPECT_EQ(same.offset, row.offset);
  unpin(page);
}

TEST_F(PoolLifecycle, ScanSeesExactlyTheCommitted) {
  open(16 * kMiB);
  std::map<Digest, RecordRow> expected;
  for (uint64_t i = 0; i < 2500; ++i) {
    const RecordRow row = set(i, 4096);
    expected[row.digest] = row;
  }
  std::vector<RecordRow> rows;
  for (uint64_t i = 0; i < 2500; i += 3) {
    remove(i, rows);
    expected.erase(digest_for(i));
  }
  const Reservation reserved = reserve(9999, 4096);
  const auto found = scanned();
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [digest, row] : expected) {
    ASSERT_TRUE(found.contains(digest));
    EXPECT_EQ(found.at(digest).generation, row.generation);
    EXPECT_EQ(found.at(digest).offset, row.offset);
  }
  unpin(reserved.page);
}

TEST_F(PoolLifecycle, SweepingANamespaceLeavesTheOthers) {
  open(8 * kMiB);
  for (uint64_t i = 0; i < 300; ++i) {
    const PageRequest request{digest_for(i), 4096};
    Reservation reservation;
    pool->reserve({&request, 1}, nullptr, i % 3, {&reservation, 1});
    commit(reservation, i);
    unpin(reservation.page);
  }
  std::vector<RecordRow> rows;
  EXPECT_EQ(pool->sweep_namespace(1, 60, rows), 60u);
  EXPECT_EQ(pool->sweep_namespace(1, 60, rows), 40u);
  EXPECT_EQ(pool->sweep_namespace(1, 60, rows), 0u);
  EXPECT_EQ(rows.size(), 100u);
  for (uint64_t i = 0; i < 300; ++i) EXPECT_EQ(held(i), i % 3 != 1) << i;
}

TEST_F(PoolLifecycle, OversizedPagesAreTooLargeAndChangeNothing) {
  open(4 * kMiB);
  set(1, 4096);
  EXPECT_EQ(reserve(2, 5 * kMiB).outcome, ReserveOutcome::too_large);
  EXPECT_EQ(reserve(1, UINT32_MAX).outcome, ReserveOutcome::too_large);
  EXPECT_EQ(reserve(3, 4 * kMiB).outcome, ReserveOutcome::too_large) << "the header needs room";
  EXPECT_TRUE(held(1));
  EXPECT_TRUE(evicted_rows().empty());
}

TEST_F(PoolLifecycle, EveryLengthFitsItsSlot) {
  open(8 * kMiB);
  uint64_t number = 0;
  for (uint32_t length : {1u, 63u, 64u, 4095u, 4096u, 4097u, 65536u, 65537u, 1048576u, 1048577u})
    set(++number, length);
  uint64_t at = 0;
  for (uint32_t length : {1u, 63u, 64u, 4095u, 4096u, 4097u, 65536u, 65537u, 1048576u, 1048577u}) {
    const PinnedPage page = pin(++at);
    ASSERT_TRUE(page);
    EXPECT_EQ(page.length, length);
    EXPECT_TRUE(painted(page.payload(), length, at)) << "overwritten by a neighbour";
    EXPECT_EQ(reinterpret_cast<uintptr_t>(page.payload()) % 64, 0u);
    unpin(page);
  }
}

}  // namespace
}  // namespace peercached
