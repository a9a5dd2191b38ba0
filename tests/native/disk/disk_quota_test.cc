// The disk space that one namespace may use.
#include "disk/format.h"
#include "disk_fixture.h"

namespace peercached::disk {
namespace {

constexpr uint32_t kPage = 10'000;
constexpr uint64_t kRoom = page_room(kPage);

class DiskQuota : public DiskFixture {
 protected:
  DiskNamespaceUse use(uint64_t ns) const { return tier->use_of(namespace_for(ns)); }
  PutOutcome put_in(uint64_t ns, uint64_t number, uint64_t epoch = 1) {
    return put(number, kPage, 0, ns, epoch);
  }
};

TEST_F(DiskQuota, StopsOneNamespaceAndNoOther) {
  open();
  tier->set_quota(namespace_for(1), 3 * kRoom + kRoom / 2);
  for (uint64_t i = 0; i < 3; ++i) store(i, kPage, 0, 1);
  EXPECT_EQ(put_in(1, 3), PutOutcome::skipped_quota);
  EXPECT_EQ(put_in(1, 0), PutOutcome::present) << "a stored page needs no room";
  for (uint64_t i = 10; i < 20; ++i) store(i, kPage, 0, 2);
  EXPECT_EQ(use(1).room_bytes, 3 * kRoom);
  EXPECT_EQ(use(1).skipped_pages, 1u);
  EXPECT_EQ(use(2).room_bytes, 10 * kRoom);
  EXPECT_EQ(use(2).quota_bytes, UINT64_MAX);
  EXPECT_EQ(tier->stats().skipped_quota, 1u);
  EXPECT_FALSE(holds(3));
}

TEST_F(DiskQuota, SmallPagesCountWithTheirRoomOnDisk) {
  open();
  const uint64_t quota = config.size_bytes / 20;
  tier->set_quota(namespace_for(1), quota);
  uint64_t pages = 0;
  while (put(pages, 1, 0, 1) == PutOutcome::queued) {
    flush();  // each page alone, in its own batch
    ASSERT_TRUE(result(pages++));
    ASSERT_LT(pages, 1000u) << "without end";
  }
  EXPECT_GT(pages, 50u);
  EXPECT_LE(tier->stats().disk_bytes_written, quota + 2 * config.segment_bytes);
}

TEST_F(DiskQuota, CountsRecoveredPagesAfterARestart) {
  open();
  for (uint64_t i = 0; i < 4; ++i) store(i, kPage, 0, 1);
  reopen();
  EXPECT_EQ(use(1).room_bytes, 4 * kRoom);
  tier->set_quota(namespace_for(1), 2 * kRoom);
  EXPECT_EQ(put_in(1, 4), PutOutcome::skipped_quota);
  for (uint64_t i = 0; i < 4; ++i)
    EXPECT_EQ(read(i, kPage), PageStatus::ok) << "a lower quota takes nothing away";
}

TEST_F(DiskQuota, RemovedClearedAndEvictedPagesFreeQuota) {
  open();
  tier->set_quota(namespace_for(1), 2 * kRoom);
  store(0, kPage, 0, 1);
  store(1, kPage, 0, 1);
  EXPECT_EQ(put_in(1, 2), PutOutcome::skipped_quota);
  remove(0);
  store(2, kPage, 0, 1);
  EXPECT_EQ(put_in(1, 3), PutOutcome::skipped_quota);
  tier->drop_namespace(namespace_for(1), 2);
  EXPECT_EQ(use(1).room_bytes, 0u) << "at once, not when it was swept";
  store(4, kPage, 0, 1, 2);
  store(5, kPage, 0, 1, 2);
  EXPECT_EQ(put_in(1, 6, 2), PutOutcome::skipped_quota);
  // The other namespace's pages push its segments out.
  for (uint64_t i = 100; i < 2000 && use(1).room_bytes > 0; ++i) {
    put_in(2, i);
    flush();
  }
  store(7, kPage, 0, 1, 2);
}

TEST_F(DiskQuota, CountsAWriteThatFailedAsGone) {
  config.faults = "disk_write_eio=1";
  open();
  tier->set_quota(namespace_for(1), kRoom);
  ASSERT_EQ(put_in(1, 0), PutOutcome::queued);
  EXPECT_TRUE(eventually([&] { return tier->stats().write_errors > 0; }));
  EXPECT_TRUE(eventually([&] { return use(1).room_bytes == 0; }));
}

TEST_F(DiskQuota, HoldsUnderConcurrentPuts) {
  open();
  constexpr uint64_t kPages = 57;
  tier->set_quota(namespace_for(1), kPages * kRoom);
  std::atomic<uint64_t> queued{0}, skipped{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 50; ++i) {
        const PutOutcome outcome = put_in(1, t * 50 + i);
        queued += outcome == PutOutcome::queued;
        skipped += outcome == PutOutcome::skipped_quota;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(queued, kPages);
  EXPECT_EQ(skipped, 200 - kPages);
  flush();
  EXPECT_EQ(use(1).room_bytes, kPages * kRoom);
}

}  // namespace
}  // namespace peercached::disk
