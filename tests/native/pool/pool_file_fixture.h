// A pool in a file on tmpfs that tests close and reopen.
#pragma once

#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include "pool/page_fixture.h"

namespace peercached {

inline const Digest kNamespace{7, 7};

class PoolFileFixture : public PageFixture {
 protected:
  void SetUp() override {
    path = "/dev/shm/peercached-test-" + std::to_string(getpid()) + "-" +
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    if (access("/dev/shm", W_OK) != 0) GTEST_SKIP() << "/dev/shm is not writable";
    unlink(path.c_str());
    config.size_bytes = 4 * kMiB;
    config.high_watermark = config.low_watermark = 2;
    config.file.path = path;
    config.file.identity[0] = std::byte{1};
  }
  void TearDown() override {
    pool.reset();
    unlink(path.c_str());
  }

  // Reopens the pool under the next incarnation. Only pages of `epoch` or later are served again.
  void reopen(uint64_t epoch = 0) {
    pool.reset();
    ++config.incarnation;
    pool = std::make_unique<Pool>(
        config, [](std::span<const RecordRow>) {},
        [=](std::span<PageNamespace> found) {
          for (PageNamespace& ns : found)
            ns.slot = ns.id == kNamespace && ns.epoch >= epoch ? kSlotOf + ns.epoch : 0;
        });
  }

  // Sets one page of the given epoch.
  RecordRow set_page(uint64_t number, uint32_t length, uint64_t epoch = 0) {
    const PageRequest request{digest_for(number), length};
    Reservation reservation;
    pool->reserve({&request, 1}, nullptr,
                  {static_cast<uint32_t>(kSlotOf + epoch), kNamespace, epoch}, {&reservation, 1});
    EXPECT_EQ(reservation.outcome, ReserveOutcome::reserved) << "page " << number;
    reservation.page.born = static_cast<Born>(number + 1);
    const RecordRow row = commit(reservation, number);
    pool->unpin({&reservation.page, 1});
    return row;
  }

  // Returns whether the page is held. Wrong bytes fail the test.
  bool right(uint64_t number) {
    const PinnedPage page = pin(number);
    if (!page) return false;
    EXPECT_TRUE(painted(page.payload(), page.length, number)) << "page " << number;
    SlotHeader header;
    std::memcpy(&header, page.header, sizeof header);
    EXPECT_TRUE(sealed(header));
    EXPECT_EQ(header.incarnation, config.incarnation);
    unpin(page);
    return true;
  }

  void flip(uint64_t offset, unsigned bit = 0) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const int byte = file.get();
    ASSERT_NE(byte, EOF);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(static_cast<char>(byte ^ (1 << bit)));
  }
  uint64_t file_bytes() const {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
  }
  std::string refusal() {
    try {
      reopen();
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  }

  static constexpr uint64_t kSlotOf = 100;
  PoolConfig config;
  std::string path;
};

}  // namespace peercached
