// A pool in a file serves the right pages after a restart, under new names, and no others.
#include "pool/page_note.h"
#include "pool/pool_file_fixture.h"

namespace peercached {
namespace {

class Recovery : public PoolFileFixture {
 protected:
  void SetUp() override {
    PoolFileFixture::SetUp();
    if (!IsSkipped()) reopen();
  }
  static uint32_t length_of(uint64_t number) {
    return number % 3 == 0 ? 100 * kKiB : number % 3 == 1 ? 16 * kKiB : 5000;
  }
};

TEST_F(Recovery, ServesEveryPageOfEverySize) {
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < 60; ++i) set_page(i, length_of(i)), bytes += length_of(i);
  reopen();
  const RecoveryReport& report = pool->recovery();
  EXPECT_EQ(report.pages, 60u);
  EXPECT_EQ(report.bytes, bytes);
  EXPECT_EQ(report.file, path);
  for (uint64_t i = 0; i < 60; ++i) EXPECT_TRUE(right(i)) << i;
  const PoolStats stats = pool->stats();
  EXPECT_EQ(stats.keys, 60u);
  EXPECT_EQ(stats.payload_bytes, bytes);
  EXPECT_EQ(stats.pins, 0u);
  EXPECT_EQ(scanned().size(), 60u);
}

TEST_F(Recovery, RecoveredPageIsSealedWithTheNewIncarnation) {
  const RecordRow before = set_page(1, 8192);
  const uint32_t others[] = {4096, 8192};
  for (uint64_t i = 2; i < 40; ++i) set_page(i, others[i % 2]);
  reopen();
  ASSERT_TRUE(right(1));
  // A generation may repeat in another incarnation, so the header holds both.
  const RecordRow now = scanned().at(digest_for(1));
  SlotHeader header;
  std::memcpy(&header, pool->base() + now.offset, sizeof header);
  EXPECT_EQ(header.incarnation, config.incarnation);
  EXPECT_EQ(header.generation, now.generation);
  EXPECT_EQ(header.born, 2u);
  EXPECT_EQ(now.offset, before.offset);
  EXPECT_EQ(now.check, before.check);
}

TEST_F(Recovery, RecoveredPoolSetsEvictsAndReopens) {
  for (uint64_t i = 0; i < 60; ++i) set_page(i, length_of(i));
  reopen();
  // Set twice the pool's size, in two lengths, so that recovered spans move between size classes.
  for (uint64_t i = 100; i < 180; ++i) set_page(i, 100 * kKiB);
  for (uint64_t i = 200; i < 700; ++i) set_page(i, 16 * kKiB);
  EXPECT_GT(pool->stats().evictions, 0u);
  EXPECT_TRUE(right(699));
  EXPECT_FALSE(held(1));
  const uint64_t keys = pool->stats().keys;
  reopen();
  EXPECT_EQ(pool->recovery().pages, keys);
  EXPECT_TRUE(right(699));
  EXPECT_FALSE(held(1)) << "evicted is evicted";
}

TEST_F(Recovery, UncommittedAndRemovedPagesAreNotRecovered) {
  set_page(1, 8192);
  const PageRequest request{digest_for(2), 8192};
  Reservation reservation;
  pool->reserve({&request, 1}, nullptr, {100, kNamespace, 0}, {&reservation, 1});
  paint(reservation.page.payload(), 8192, 2);
  std::vector<RecordRow> rows;
  set_page(3, 8192);
  remove(3, rows);
  reopen();
  EXPECT_TRUE(right(1));
  EXPECT_FALSE(held(2));
  EXPECT_FALSE(held(3));
  EXPECT_EQ(pool->recovery().pages, 1u);
}

TEST_F(Recovery, PagesOfAClearedEpochAreDroppedAndStayDropped) {
  for (uint64_t i = 0; i < 10; ++i) set_page(i, 8192, i < 4 ? 0 : 1);
  reopen(1);
  EXPECT_EQ(pool->recovery().pages, 6u);
  EXPECT_EQ(pool->recovery().cleared, 4u);
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(right(i), i >= 4) << i;
  reopen(0);  // still cleared, even without the epoch
  EXPECT_EQ(pool->recovery().pages, 6u);
}

TEST_F(Recovery, ARecoveredNamespaceCanBeSwept) {
  for (uint64_t i = 0; i < 10; ++i) set_page(i, 8192, i % 2);
  reopen();
  std::vector<RecordRow> rows;
  EXPECT_EQ(pool->sweep_namespace(kSlotOf + 1, 100, rows), 5u);
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(right(i), i % 2 == 0) << i;
  reopen();
  EXPECT_EQ(pool->recovery().pages, 5u);
}

TEST_F(Recovery, WithoutANamespaceAPageEndsWithTheProcess) {
  set(1, 8192);
  reopen();
  EXPECT_FALSE(held(1));
  EXPECT_EQ(pool->recovery().unfinished, 1u);
}

TEST_F(Recovery, EvictionGoesOnInTheOrderOfUse) {
  config.size_bytes = 2 * kMiB;
  reopen();
  for (uint64_t i = 0; i < 20; ++i) set_page(i, 64 * kKiB);
  touch({3});
  pool->remember_order();
  reopen();
  ASSERT_EQ(pool->recovery().pages, 20u);
  for (uint64_t i = 100; i < 125; ++i) set_page(i, 64 * kKiB);
  EXPECT_TRUE(held(3)) << "used last";
  EXPECT_FALSE(held(0));
  EXPECT_TRUE(held(19));
}

TEST_F(Recovery, AChainIsStillEvictedFromItsTail) {
  const std::vector<uint64_t> chain = {0, 1, 2, 3, 4, 5, 6, 7};
  config.size_bytes = 2 * kMiB;
  for (int restarts = 1; restarts <= 2; ++restarts) {
    reopen();
    if (restarts == 1) {
      std::vector<PageRequest> requests;
      for (uint64_t number : chain) requests.push_back({digest_for(number), 64 * kKiB});
      std::vector<Reservation> out(chain.size());
      pool->reserve(requests, nullptr, {100, kNamespace, 0}, out);
      for (size_t i = 0; i < out.size(); ++i) {
        commit(out[i], chain[i]);
        pool->unpin({&out[i].page, 1});
      }
    }
  }
  ASSERT_EQ(pool->recovery().pages, chain.size());
  for (uint64_t i = 100; held(7); ++i) set_page(i, 64 * kKiB);
  for (uint64_t number : chain) EXPECT_EQ(held(number), number != 7) << number;
}

TEST_F(Recovery, AFlippedBitAnywhereCostsAtMostItsPage) {
  std::map<uint64_t, RecordRow> rows;
  for (uint64_t i = 0; i < 40; ++i) rows[i] = set_page(i, length_of(i));
  reopen();
  uint64_t lost = 0;
  std::vector<uint64_t> flips;
  for (uint64_t i = 0; i < 40; i += 4) {
    const uint64_t slot = scanned().at(digest_for(i)).offset;
    const uint64_t room = (length_of(i) + 4095) / 4096 * 4096;
    const uint64_t places[] = {slot + 3,
                               slot + 30,
                               slot + 60,
                               slot + 64 + length_of(i) / 2,
                               slot + 64 + length_of(i) - 1,
                               slot + 64 + room + 5,
                               slot + 64 + room + 36};
    flips.push_back(places[(i / 4) % 7]);
  }
  pool.reset();
  for (uint64_t at : flips) flip(at, 5), ++lost;
  reopen();
  const RecoveryReport& report = pool->recovery();
  EXPECT_EQ(report.pages, 40 - lost);
  EXPECT_EQ(report.damaged_headers + report.damaged_payloads + report.unfinished, lost);
  EXPECT_GT(report.damaged_headers, 0u);
  EXPECT_GT(report.damaged_payloads, 0u);
  EXPECT_GT(report.unfinished, 0u);
  for (uint64_t i = 0; i < 40; ++i) EXPECT_EQ(right(i), i % 4 != 0) << i;
}

TEST_F(Recovery, ADamagedSpanIsFreeRoom) {
  for (uint64_t i = 0; i < 60; ++i) set_page(i, length_of(i));
  const uint64_t pool_bytes = pool->size_bytes();
  pool.reset();
  // Damages every word of the table, at varying bytes.
  for (uint64_t word = 0; word < pool_bytes / 4096; ++word) flip(pool_bytes + word * 8 + word % 8);
  reopen();
  EXPECT_EQ(pool->recovery().pages, 0u);
  EXPECT_EQ(pool->recovery().damaged_spans, pool_bytes / 4096);
  for (uint64_t i = 0; i < 60; ++i) set_page(i, length_of(i));
  reopen();
  EXPECT_EQ(pool->recovery().damaged_spans, 0u);
  for (uint64_t i = 0; i < 60; ++i) EXPECT_TRUE(right(i)) << i;
}

// A worker stores forged slots in its payload, where a later span will have its slots.
TEST_F(Recovery, AForgedSlotInAPayloadIsNoPage) {
  constexpr uint32_t kBig = 1 * kMiB, kSmall = 4096;
  const PageRequest request{digest_for(1), kBig};
  Reservation reservation;
  pool->reserve({&request, 1}, nullptr, {100, kNamespace, 0}, {&reservation, 1});
  std::byte* payload = reservation.page.payload();
  std::vector<std::byte> content(kSmall, std::byte{'F'});
  const uint64_t stride = 64 + kSmall + 64;
  // At every offset of a 4 KiB slot, in a span that begins where this one does.
  for (uint64_t at = stride; at + stride + 64 <= kBig; at += stride) {
    std::byte* slot = payload - 64 + at;
    SlotHeader header{
        digest_for(666), config.incarnation, 5, kSmall, checksum(content.data(), kSmall),
        kSlotCommitted,  kSlotVersion,       0};
    seal(header);
    PageNote note{digest_for(666), kNamespace, 0, 0, 0, 0};
    seal(note);
    std::memcpy(slot, &header, 64);
    std::memcpy(slot + 64, content.data(), kSmall);
    std::memcpy(slot + 64 + kSmall, &note, 64);
  }
  reservation.page.checksum = checksum(payload, kBig);
  RecordRow row;
  pool->commit({&reservation.page, 1}, {&row, 1});
  pool->unpin({&reservation.page, 1});
  std::vector<RecordRow> rows;
  remove(1, rows);
  const RecordRow small = set_page(2, kSmall);
  ASSERT_EQ(small.offset, row.offset) << "the span begins where the forger's did";
  reopen();
  EXPECT_TRUE(right(2));
  EXPECT_FALSE(held(666));
  EXPECT_EQ(pool->recovery().pages, 1u);
}

// Returns a mounted hugetlbfs that we may write to, or "".
std::string huge_folder() {
  std::ifstream mounts("/proc/mounts");
  std::string device, folder, type, rest;
  while (mounts >> device >> folder >> type && std::getline(mounts, rest))
    if (type == "hugetlbfs" && access(folder.c_str(), W_OK) == 0) return folder;
  return "";
}

TEST_F(Recovery, WorksInHugePages) {
  const std::string folder = huge_folder();
  if (folder.empty()) GTEST_SKIP() << "no hugetlbfs is mounted that we may write to";
  pool.reset();
  unlink(path.c_str());
  config.file.path = path = folder + "/peercached-test-" + std::to_string(getpid());
  config.huge_pages = true;
  config.size_bytes = 8 * kMiB;
  try {
    reopen();
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("huge"), std::string::npos) << error.what();
    GTEST_SKIP() << error.what();
  }
  for (uint64_t i = 0; i < 60; ++i) set_page(i, length_of(i));
  reopen();
  EXPECT_EQ(pool->recovery().pages, 60u);
  for (uint64_t i = 0; i < 60; ++i) EXPECT_TRUE(right(i)) << i;
  config.size_bytes = 6 * kMiB;
  reopen();
  EXPECT_NE(pool->recovery().why_fresh, "");
  set_page(1, 8192);
  EXPECT_TRUE(right(1));
}

}  // namespace
}  // namespace peercached
