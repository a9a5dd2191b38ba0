// The promises of the tier while nothing fails.
#include <fcntl.h>
#include <unistd.h>

#include <set>

#include "disk/forwarding_io.h"
#include "disk/record_read.h"
#include "disk_fixture.h"

namespace peercached::disk {
namespace {

class DiskStore : public DiskFixture {};

TEST_F(DiskStore, PagesAreReadBackBeforeAndAfterReopening) {
  const uint32_t lengths[] = {1, 63, 64, 65, 4096, 16384, 131072, 200'001};
  open();
  for (uint64_t i = 0; i < std::size(lengths); ++i) store(i, lengths[i]);
  for (int round = 0; round < 2; ++round) {
    for (uint64_t i = 0; i < std::size(lengths); ++i)
      EXPECT_EQ(read(i, lengths[i]), PageStatus::ok) << lengths[i];
    EXPECT_EQ(tier->stats().pages, std::size(lengths));
    reopen();
  }
  EXPECT_EQ(tier->stats().recovery.walked, 0u) << "closing seals the open segment";
}

TEST_F(DiskStore, ReadsPagesLargerThanOneRead) {
  config.size_bytes = 128 * kMiB;
  config.segment_bytes = 32 * kMiB;
  open();
  constexpr uint32_t kRead = kReadBytesMax;
  for (uint32_t length : {kRead - 200, kRead, kRead + 1, 4 * kRead - 777}) {
    store(length, length);
    EXPECT_EQ(read(length, length), PageStatus::ok) << length;
  }
}

TEST_F(DiskStore, FindReturnsNamespaceEpochAndLength) {
  open();
  EXPECT_FALSE(tier->find(digest_for(1)));
  store(1, 5000, 0, 7, 3);
  const auto page = tier->find(digest_for(1));
  ASSERT_TRUE(page);
  EXPECT_EQ(page->namespace_id, namespace_for(7));
  EXPECT_EQ(page->epoch, 3u);
  EXPECT_EQ(page->length, 5000u);
  EXPECT_EQ(put(1, 5000), PutOutcome::present);
  EXPECT_EQ(read(1, 4999), PageStatus::absent) << "another length than the stored one";
  EXPECT_EQ(read(2, 10), PageStatus::absent);
  std::vector<DiskPage> scanned;
  uint64_t at = 0;
  while (tier->scan(at, scanned)) {
  }
  EXPECT_EQ(scanned.size(), 1u);
}

TEST_F(DiskStore, RefusesEmptyAndOversizedPages) {
  open();
  EXPECT_EQ(put(1, 0), PutOutcome::skipped_large);
  EXPECT_EQ(put(1, kMiB / 4 + 1), PutOutcome::skipped_large);
  store(1, kMiB / 4);
  EXPECT_EQ(tier->stats().skipped_large, 2u);
}

TEST_F(DiskStore, ReplacesAPageThatComesWithAnotherContent) {
  open();
  store(1, 5000, 0);
  store(1, 5000, 1);
  EXPECT_EQ(read(1, 5000, 1), PageStatus::ok);
  reopen();
  EXPECT_EQ(read(1, 5000, 1), PageStatus::ok);
}

TEST_F(DiskStore, RemovedPagesStayRemoved) {
  open();
  for (uint64_t i = 0; i < 10; ++i) store(i, 10'000);
  for (uint64_t i = 0; i < 10; i += 2) remove(i);
  for (int round = 0; round < 2; ++round) {
    for (uint64_t i = 0; i < 10; ++i) {
      EXPECT_EQ(holds(i), i % 2 == 1) << i;
      EXPECT_EQ(read(i, 10'000), i % 2 == 1 ? PageStatus::ok : PageStatus::absent) << i;
    }
    flush();
    EXPECT_EQ(tier->stats().removals_waiting, 0u);
    reopen();
  }
  store(4, 10'000);
  reopen();
  EXPECT_EQ(read(4, 10'000), PageStatus::ok) << "put again after it was removed";
}

TEST_F(DiskStore, ADroppedNamespaceIsGoneAtOnceAndForEver) {
  open();
  store(1, 1000, 0, 1, 4);
  store(2, 1000, 0, 1, 5);
  store(3, 1000, 0, 2, 4);
  tier->drop_namespace(namespace_for(1), 5);
  EXPECT_FALSE(holds(1));
  EXPECT_EQ(put(4, 1000, 0, 1, 4), PutOutcome::skipped_old);
  flush();
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(read(1, 1000), PageStatus::absent);
    EXPECT_EQ(read(2, 1000), PageStatus::ok);
    EXPECT_EQ(read(3, 1000), PageStatus::ok);
    EXPECT_TRUE(eventually([&] { return tier->stats().pages == 2; }));
    reopen();
  }
  EXPECT_EQ(put(4, 1000, 0, 1, 4), PutOutcome::skipped_old) << "known after a restart";
}

TEST_F(DiskStore, EvictsTheOldestPagesAndReportsThem) {
  open();
  constexpr uint64_t kPages = 400;
  for (uint64_t i = 0; i < kPages; ++i) {
    ASSERT_EQ(put(i, 100'000), PutOutcome::queued);
    if (i % 20 == 19) flush();
    EXPECT_LE(tier->stats().used_bytes, config.size_bytes);
  }
  flush();
  // The last eviction may still be running.
  EXPECT_TRUE(eventually([&] {
    std::set<uint64_t> held, readable;
    for (uint64_t i = 0; i < kPages; ++i) {
      if (holds(i)) held.insert(i);
      if (read(i, 100'000) == PageStatus::ok) readable.insert(i);
    }
    const auto gone = evicted_digests();
    bool all_said = gone.size() + held.size() == kPages;
    for (uint64_t i : held) all_said = all_said && !gone.contains(digest_for(i));
    return all_said && readable == held;
  }));
  EXPECT_GT(evicted_digests().size(), kPages / 2);
  EXPECT_TRUE(holds(kPages - 1));
  EXPECT_FALSE(holds(0));
  uint64_t bytes = 0;
  for (const auto& file : segment_files()) bytes += std::filesystem::file_size(file);
  EXPECT_LE(bytes, config.size_bytes);
  EXPECT_EQ(bytes, tier->stats().used_bytes);
}

TEST_F(DiskStore, CarriesPagesThatAreUsedForwardWithinTheBudget) {
  open();
  for (uint64_t i = 0; i < 600; ++i) {
    ASSERT_EQ(put(i, 100'000), PutOutcome::queued);
    if (i % 5 == 4) flush();
    if (i > 10) touch(3);
  }
  flush();
  EXPECT_EQ(read(3, 100'000), PageStatus::ok) << "used all the time";
  EXPECT_FALSE(holds(4));
  const DiskStats stats = tier->stats();
  EXPECT_GT(stats.pages_carried, 2u);
  EXPECT_LT(stats.pages_carried, 60u);
  EXPECT_LT(static_cast<double>(stats.disk_bytes_written),
            1.3 * static_cast<double>(stats.payload_bytes_written));
  reopen();
  EXPECT_EQ(read(3, 100'000), PageStatus::ok);
}

TEST_F(DiskStore, NamesPagesThatLeaveSoonInTheOrderOfTheirPuts) {
  open();
  std::vector<Digest> named;
  // A busy machine might evict two segments at a time, and the second one is then not named before.
  const auto has_room = [&] {
    return tier->stats().used_bytes + 2 * config.segment_bytes <= config.size_bytes;
  };
  for (uint64_t i = 0; i < 400; ++i) {
    ASSERT_EQ(put(i, 100'000), PutOutcome::queued);
    flush();
    ASSERT_TRUE(eventually(has_room));
    if (i % 2 == 0) tier->set_uses(digest_for(i), 2);
    tier->set_uses(digest_for(i), 1);  // the count does not fall
    if (i % 50 == 7) touch(i);
    if (i == 50) {
      EXPECT_TRUE(tier->leaving(0).empty()) << "there is much room";
    }
    for (const DiskPage& page : tier->leaving(2)) {
      EXPECT_EQ(page.uses, 2u);
      if (std::ranges::find(named, page.digest) == named.end()) named.push_back(page.digest);
      std::vector<std::byte> dest(page.length);
      DiskRead one{page.digest, dest.data(), page.length, PageStatus::pending, 0};
      tier->read({&one, 1}, Deadline::after_ms(20'000), false, /*touches=*/false);
      EXPECT_NE(one.status, PageStatus::error);
    }
  }
  ASSERT_GT(named.size(), 100u);
  std::vector<Digest> wanted;
  for (uint64_t i = 0; wanted.size() < named.size(); i += 2) wanted.push_back(digest_for(i));
  EXPECT_EQ(named, wanted);
  const std::set<Digest> gone = evicted_digests();
  std::vector<Digest> all, used;
  for (uint64_t i = 0; i < 400; i += 2)
    if (tier->find(digest_for(i))) all.push_back(digest_for(i));
  for (const DiskPage& page : tier->used(2)) used.push_back(page.digest);
  EXPECT_EQ(used, all) << "in the order of their puts";
  for (uint64_t i = 0; i < 200; ++i) {
    const bool named_before = std::ranges::find(named, digest_for(i)) != named.end();
    EXPECT_TRUE(i % 2 != 0 || named_before || !gone.contains(digest_for(i))) << i;
  }
  EXPECT_LT(tier->stats().pages_carried, 10u) << "a read without touch is no use";
}

TEST_F(DiskStore, RemovedPagesAreNotCarriedForward) {
  open();
  store(3, 100'000);
  touch(3);
  remove(3);
  for (uint64_t i = 10; i < 400; ++i) {
    ASSERT_EQ(put(i, 100'000), PutOutcome::queued);
    if (i % 20 == 19) flush();
  }
  EXPECT_FALSE(holds(3));
  reopen();
  EXPECT_FALSE(holds(3));
}

TEST_F(DiskStore, ASmallerTierEvictsDownToItsSize) {
  config.size_bytes = 32 * kMiB;
  open();
  for (uint64_t i = 0; i < 250; ++i) {
    ASSERT_EQ(put(i, 100'000), PutOutcome::queued);
    if (i % 20 == 19) flush();
  }
  close();
  config.size_bytes = 16 * kMiB;
  open();
  EXPECT_TRUE(eventually([&] { return tier->stats().used_bytes <= config.size_bytes; }));
  store(1000, 1000);
  EXPECT_EQ(read(249, 100'000), PageStatus::ok);
  EXPECT_FALSE(holds(0));
}

TEST_F(DiskStore, ADirectoryIsUsedByOneDaemonAtATime) {
  open();
  try {
    open_disk_tier(config, [](auto) {});
    FAIL() << "opened twice";
  } catch (const DiskError& error) {
    EXPECT_NE(std::string(error.what()).find(std::to_string(::getpid())), std::string::npos)
        << error.what();
  }
  close();
  open();
}

TEST_F(DiskStore, RefusesADirectoryOfAnotherIdentity) {
  open();
  close();
  config.identity[3] = std::byte{9};
  EXPECT_THROW(open(), DiskError);
}

TEST_F(DiskStore, RefusesADirectoryOfAnotherVersionOrWithADamagedSuperblock) {
  open();
  close();
  Superblock block;
  block.version = kFormatVersion + 1;
  block.identity = config.identity;
  const std::string name = config.path + "/format";
  for (const bool good : {true, false}) {
    seal(block);
    if (!good) block.check ^= 1;
    const int fd = ::open(name.c_str(), O_WRONLY);
    ASSERT_EQ(::pwrite(fd, &block, sizeof block, 0), static_cast<ssize_t>(sizeof block));
    ::close(fd);
    EXPECT_THROW(open(), DiskError);
  }
}

TEST_F(DiskStore, RefusesDirectoriesThatAreNotItsOwn) {
  const std::string path = config.path;
  config.path = path + "/below/nothing";
  EXPECT_THROW(open(), DiskError) << "no parent";
  config.path = folder.path();
  ::close(::open((folder.path() + "/diary.txt").c_str(), O_CREAT | O_WRONLY, 0600));
  EXPECT_THROW(open(), DiskError) << "somebody's files";
  config.path = folder.path() + "/diary.txt";
  EXPECT_THROW(open(), DiskError) << "a file";
  config.path = path;
  config.size_bytes = kMiB;
  EXPECT_THROW(open(), DiskError) << "too small";
}

class ReadOnlyIo : public ForwardingIo {
 public:
  ReadOnlyIo() : ForwardingIo(posix_io()) {}
  int make_directory(const std::string&) override { return -EROFS; }
};

TEST_F(DiskStore, ReadOnlyFolderErrorNamesReadWritePaths) {
  ReadOnlyIo io;
  try {
    open(io);
    FAIL() << "opened";
  } catch (const DiskError& error) {
    EXPECT_NE(std::string(error.what()).find("ReadWritePaths="), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace peercached::disk
