// Pages for the object store: which ones leave this node, and their bytes from pool and disk.

#include "engine/storage/leaving_pages.h"

#include "engine/storage/disk_pages_fixture.h"

namespace peercached {
namespace {

class LeavingPagesTest : public DiskPagesFixture {
 protected:
  void use(const Digest& digest) {
    PinnedPage page;
    pool_->pin({&digest, 1}, nullptr, true, {&page, 1});
    ASSERT_TRUE(page);
    pool_->unpin({&page, 1});
  }
  void leave_pool(const Digest& digest) { ASSERT_EQ(pool_->evict({&digest, 1}).pages, 1u); }
  std::vector<Digest> next(uint8_t uses_min) const {
    return digests(leaving().next(1 << 30, uses_min, 1 << 20));
  }
  std::vector<Digest> at_end(bool disk_stays) const {
    return digests(leaving().at_end(1, disk_stays, 1 << 20));
  }
  static std::vector<Digest> digests(const std::vector<LeavingPart>& parts) {
    std::vector<Digest> all;
    for (const LeavingPart& part : parts)
      all.insert(all.end(), part.digests.begin(), part.digests.end());
    return all;
  }
  LeavingPages leaving() const { return {*pool_, *disk_, namespaces_, objects_}; }

  ObjectIndex objects_;
};

TEST_F(LeavingPagesTest, PagesOnTheDiskDoNotLeaveWithThePool) {
  open(4 << 20, false);
  const Digest written = digest_of_page(1), skipped = digest_of_page(2), unused = digest_of_page(3),
               stored = digest_of_page(4);
  ASSERT_TRUE(set(written));
  tier_->write_all();
  tier_->queue_max = 0;
  for (const Digest& digest : {skipped, unused, stored}) ASSERT_TRUE(set(digest));
  for (const Digest& digest : {written, skipped, stored}) use(digest);
  const ObjectEntry entry{stored, 0, 0, kDiskPageBytes};
  objects_.add({{9, 9}, ns_->id(), 0}, {&entry, 1});

  EXPECT_EQ(next(1), std::vector{skipped});
  EXPECT_EQ(at_end(true), std::vector{skipped});
  EXPECT_EQ(at_end(false).size(), 2u) << "the disk does not stay";
  leave_pool(written);
  EXPECT_EQ(at_end(true), std::vector{skipped});
  EXPECT_EQ(at_end(false), (std::vector{skipped, written})) << "it is on the disk only";
  remove(skipped);
  EXPECT_EQ(next(1), std::vector<Digest>());
}

TEST_F(LeavingPagesTest, UsesCountAcrossPoolAndDisk) {
  open(4 << 20, false);
  const Digest digest = digest_of_page(1);
  ASSERT_TRUE(set(digest));
  tier_->write_all();
  use(digest);
  leave_pool(digest);
  EXPECT_EQ(tier_->find(digest)->uses, 1u);
  EXPECT_EQ(told_.back().uses, 0u) << "other nodes do not get the count";
  EXPECT_EQ(promote(digest), PromoteStatus::in_pool);  // for somebody who waits
  use(digest);
  leave_pool(digest);
  EXPECT_EQ(tier_->find(digest)->uses, 3u);
}

TEST_F(LeavingPagesTest, BytesComeFromPoolAndDiskInOrder) {
  open(4 << 20, false);
  std::vector<Digest> digests;
  for (uint64_t n = 0; n < 6; ++n) digests.push_back(digest_of_page(n));
  for (const Digest& digest : digests) ASSERT_TRUE(set(digest));
  tier_->write_all();
  for (const size_t n : {1, 2, 4}) leave_pool(digests[n]);
  remove(digests[2]);
  std::vector<Digest> seen;
  {
    const ObjectPages pages(*pool_, *disk_, digests, 4 * kDiskPageBytes, 0, 64,
                            Deadline::after_ms(10'000));
    for (const auto& [entry, payload, born] : pages.pages()) {
      EXPECT_EQ(entry.offset, seen.size() * kDiskPageBytes);
      seen.push_back(entry.digest);
      ASSERT_EQ(entry.length, kDiskPageBytes);
      const auto bytes = content_of(entry.digest);
      EXPECT_EQ(std::memcmp(payload, bytes.data(), bytes.size()), 0);
      EXPECT_EQ(born, born_of(entry.digest)) << "also of a page on the disk";
      EXPECT_EQ(entry.checksum, checksum(payload, entry.length));
    }
    EXPECT_EQ(pool_->stats().pins, 2u);
  }
  EXPECT_EQ(seen, (std::vector{digests[0], digests[1], digests[3], digests[4]})) << "a removed one";
  EXPECT_EQ(pool_->stats().pins, 0u);
  tier_->hang(true);
  const ObjectPages pages(*pool_, *disk_, digests, 1 << 20, 0, 64, Deadline::after_ms(10'000));
  EXPECT_EQ(pages.pages().size(), 3u) << "the disk does not answer";
  tier_->hang(false);
}

}  // namespace
}  // namespace peercached
