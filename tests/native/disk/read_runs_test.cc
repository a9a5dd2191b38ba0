// Adjacent pages are read together, but fail separately.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <random>

#include "disk_fixture.h"
#include "hooked_io.h"

namespace peercached::disk {
namespace {

class DiskReadRuns : public DiskFixture {
 protected:
  ~DiskReadRuns() override { close(); }
  void open() { DiskFixture::open(io); }

  // Queues all pages at once, so that they are adjacent in the log.
  void store_all(uint64_t count, uint32_t length) {
    for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(put(i, length), PutOutcome::queued);
    flush();
  }
  // Returns the statuses. The bytes of each ok page have been compared.
  std::vector<PageStatus> read_all_of(const std::vector<uint64_t>& numbers,
                                      const std::vector<uint32_t>& lengths) {
    std::vector<std::vector<std::byte>> dest;
    std::vector<DiskRead> batch;
    for (size_t i = 0; i < numbers.size(); ++i) {
      dest.emplace_back(lengths[i]);
      batch.push_back({digest_for(numbers[i]), dest[i].data(), lengths[i], PageStatus::pending, 0});
    }
    reads = 0;
    tier->read(batch, Deadline::after_ms(60'000), true);
    std::vector<PageStatus> statuses;
    for (size_t i = 0; i < batch.size(); ++i) {
      statuses.push_back(batch[i].status);
      if (batch[i].status == PageStatus::ok) {
        EXPECT_EQ(dest[i], payload_of(numbers[i], lengths[i])) << "wrong bytes: " << numbers[i];
      }
    }
    return statuses;
  }
  uint64_t right(const std::vector<uint64_t>& numbers, uint32_t length) {
    const auto statuses = read_all_of(numbers, std::vector<uint32_t>(numbers.size(), length));
    return static_cast<uint64_t>(std::ranges::count(statuses, PageStatus::ok));
  }
  // Returns the payload's segment file and its offset there.
  std::pair<std::string, size_t> find_on_disk(const std::vector<std::byte>& payload) const {
    for (const std::string& path : segment_files()) {
      std::ifstream file(path, std::ios::binary);
      std::vector<char> all(config.segment_bytes);
      file.read(all.data(), static_cast<std::streamsize>(all.size()));
      const auto bytes = std::as_bytes(std::span(all));
      const auto at = std::search(bytes.begin(), bytes.end(), payload.begin(), payload.end());
      if (at != bytes.end()) return {path, static_cast<size_t>(at - bytes.begin())};
    }
    ADD_FAILURE() << "not there";
    return {};
  }
  void any_order_of_any_sizes(Io& of);
  static std::vector<uint64_t> first(uint64_t count) {
    std::vector<uint64_t> numbers;
    for (uint64_t i = 0; i < count; ++i) numbers.push_back(i);
    return numbers;
  }

  std::atomic<uint64_t> reads{0};
  std::atomic<int> failing{0};  // this many of the next reads fail
  HookedIo io{[this](IoCall call) {
    if (call != IoCall::read) return 0;
    ++reads;
    return failing > 0 && failing.fetch_sub(1) > 0 ? -EIO : 0;
  }};
};

TEST_F(DiskReadRuns, NeighboursShareOneReadAndOthersTakeOneEach) {
  config.size_bytes = 64 * kMiB;
  config.segment_bytes = 8 * kMiB;
  open();
  store_all(60, 16'384);  // 0.95 MiB: one batch of the log, unless the writers start early
  auto numbers = first(60);
  EXPECT_EQ(right(numbers, 16'384), 60u);
  EXPECT_LE(reads, 16u) << "15 pages are 248 KiB";
  std::ranges::reverse(numbers);
  EXPECT_EQ(right(numbers, 16'384), 60u);
  EXPECT_EQ(reads, 60u);
  std::erase_if(numbers, [](uint64_t number) { return number % 2 == 0; });
  std::ranges::reverse(numbers);
  EXPECT_EQ(right(numbers, 16'384), 30u);
  EXPECT_EQ(reads, 30u) << "not the pages between them";
}

// The cost of a promote: each page, whatever its length, is copied once, into its slot.
TEST_F(DiskReadRuns, APageCostsOneReadAndOneCopy) {
  config.size_bytes = 64 * kMiB;
  config.segment_bytes = 16 * kMiB;
  open();
  for (uint64_t i = 0; i < 40; ++i) {
    ASSERT_EQ(put(i, 16'384), PutOutcome::queued);
    ASSERT_EQ(put(100 + i, 1000), PutOutcome::queued);  // fills no whole block in between
  }
  flush();
  auto numbers = first(40);
  std::ranges::reverse(numbers);
  EXPECT_EQ(right(numbers, 16'384), 40u);
  DiskStats stats = tier->stats();
  EXPECT_EQ(stats.disk_reads, 40u);
  EXPECT_EQ(stats.disk_bytes_read, 40u * 16'384) << "no byte of a neighbour or a header";
  EXPECT_EQ(stats.copied_bytes_read, 40u * 16'384);
  EXPECT_EQ(put(50, 100'001), PutOutcome::queued);
  EXPECT_EQ(put(51, 3 * kMiB + 5), PutOutcome::queued);  // needs three reads
  flush();
  EXPECT_EQ(right({50}, 100'001), 1u);
  EXPECT_EQ(right({51}, 3 * kMiB + 5), 1u);
  stats = tier->stats();
  EXPECT_EQ(stats.disk_reads, 44u);
  EXPECT_EQ(stats.copied_bytes_read, stats.payload_bytes_read);
}

TEST_F(DiskReadRuns, OneMiBPageTakesOneRead) {
  config.size_bytes = 64 * kMiB;
  config.segment_bytes = 16 * kMiB;
  open();
  store_all(3, kMiB);
  EXPECT_EQ(right({2}, kMiB), 1u);
  EXPECT_EQ(reads, 1u);
}

TEST_F(DiskReadRuns, AReadThatFailsIsTriedPageByPage) {
  open();
  store_all(10, 10'000);
  failing = 1;  // the shared read
  EXPECT_EQ(right(first(10), 10'000), 10u);
  EXPECT_EQ(tier->stats().reads_failed, 0u);
  failing = 2;  // the shared read, then the first page's own
  const auto statuses = read_all_of(first(10), std::vector<uint32_t>(10, 10'000));
  EXPECT_EQ(std::ranges::count(statuses, PageStatus::error), 1);
  EXPECT_EQ(std::ranges::count(statuses, PageStatus::ok), 9);
  EXPECT_EQ(tier->stats().reads_failed, 1u);
  EXPECT_EQ(evicted_digests().size(), 1u);
}

TEST_F(DiskReadRuns, ADamagedPageCostsNoneOfItsNeighbours) {
  open();
  store_all(10, 10'000);
  // Damage a word of page 4 on the disk.
  const auto [path, begin] = find_on_disk(payload_of(4, 10'000));
  const int fd = ::open(path.c_str(), O_RDWR);
  const uint64_t garbage = 0x0123456789abcdef;
  ASSERT_EQ(::pwrite(fd, &garbage, 8, static_cast<off_t>(begin + 4000)), 8);
  ::close(fd);
  const auto statuses = read_all_of(first(10), std::vector<uint32_t>(10, 10'000));
  for (uint64_t i = 0; i < 10; ++i)
    EXPECT_EQ(statuses[i], i == 4 ? PageStatus::absent : PageStatus::ok) << i;
  EXPECT_EQ(tier->stats().reads_corrupt, 1u);
}

// Like AReadThatFailsIsTriedPageByPage, with a failure that io_uring itself finds: the file ends
// within the run.
TEST_F(DiskReadRuns, PagesBeforeTheEndOfATruncatedFileAreRead) {
  DiskFixture::open(posix_io());
  store_all(10, 10'000);
  const auto [path, begin] = find_on_disk(payload_of(6, 10'000));
  const uint64_t end = (begin + 9'999) / 4096 * 4096;
  std::filesystem::resize_file(path, end);  // cuts a few bytes off page 6
  const auto statuses = read_all_of(first(10), std::vector<uint32_t>(10, 10'000));
  for (uint64_t i = 0; i < 6; ++i) EXPECT_EQ(statuses[i], PageStatus::ok) << i;
  // The first page behind the cut is an error. The tier then logs its loss behind all pages, which
  // may extend the file before the next read. The later pages then read as zeros: damaged.
  const auto errors = std::ranges::count(statuses, PageStatus::error);
  EXPECT_GE(errors, 1);
  EXPECT_EQ(errors + std::ranges::count(statuses, PageStatus::absent), 4);
  EXPECT_EQ(tier->stats().reads_failed, static_cast<uint64_t>(errors));
  EXPECT_EQ(tier->stats().reads_corrupt, static_cast<uint64_t>(4 - errors));
  EXPECT_EQ(tier->stats().disk_reads, 11u) << "one for all, and one for each";
  if (!tier->stats().io.ends_with("io_uring")) GTEST_SKIP() << tier->stats().io;
}

TEST_F(DiskReadRuns, AnyOrderOfAnySizesGivesTheRightBytes) { any_order_of_any_sizes(io); }

TEST_F(DiskReadRuns, AnyOrderOfAnySizesGivesTheRightBytesWithIoUring) {
  any_order_of_any_sizes(posix_io());
  if (!tier->stats().io.ends_with("io_uring")) GTEST_SKIP() << tier->stats().io;
}

void DiskReadRuns::any_order_of_any_sizes(Io& of) {
  config.size_bytes = 128 * kMiB;
  config.segment_bytes = 8 * kMiB;
  DiskFixture::open(of);
  std::mt19937_64 random(7);
  std::vector<uint32_t> lengths;
  for (uint64_t i = 0; i < 300; ++i) {
    const uint32_t most[] = {100, 5'000, 70'000, 300'000, 1'500'000};
    lengths.push_back(1 + static_cast<uint32_t>(random() % most[random() % 5]));
    ASSERT_EQ(put(i, lengths[i]), PutOutcome::queued);
    if (i % 10 == 9) flush();
  }
  for (int round = 0; round < 40; ++round) {
    std::vector<uint64_t> numbers;
    std::vector<uint32_t> wanted;
    for (uint64_t at = random() % 300; numbers.size() < 40;) {
      numbers.push_back(at);
      wanted.push_back(lengths[at]);
      const uint64_t kind = random() % 8;  // mostly the next page; also gaps, repeats and jumps
      at = kind == 0 ? random() % 300 : (at + (kind == 1 ? 2 : kind == 2 ? 0 : 1)) % 300;
    }
    const auto statuses = read_all_of(numbers, wanted);
    ASSERT_EQ(std::ranges::count(statuses, PageStatus::ok), 40);
  }
}

}  // namespace
}  // namespace peercached::disk
