// A failing, full or silent disk: the tier reports it, callers do not wait, no wrong bytes are
// read.
#include <cerrno>

#include "disk/faulty_io.h"
#include "disk_fixture.h"
#include "hooked_io.h"

namespace peercached::disk {
namespace {

class DiskFaultsTest : public DiskFixture {
 protected:
  DiskFaultsTest() {
    times.probe_ms_min = 10;
    times.probe_ms_max = 20;
  }
  ~DiskFaultsTest() override { close(); }  // the tier uses the members below
  // The next `count` calls fail with `error`; -1: all.
  void fail(IoCall call, int error, int count = -1) {
    std::lock_guard lock(hold_mutex);
    errors[static_cast<size_t>(call)] = {error, count};
  }
  void works(IoCall call) { fail(call, 0, 0); }
  void hold(IoCall call) { allow(call, 0); }
  void release(IoCall call) { allow(call, -1); }
  // The next `calls` calls go through and later ones wait; -1: all go through.
  void allow(IoCall call, int calls) {
    std::lock_guard lock(hold_mutex);
    allowed[static_cast<size_t>(call)] = calls;
    hold_changed.notify_all();
  }
  bool used_up(IoCall call) {
    return eventually([&] {
      std::lock_guard lock(hold_mutex);
      return allowed[static_cast<size_t>(call)] == 0;
    });
  }
  bool waits(IoCall call) {
    return eventually([&] {
      std::lock_guard lock(hold_mutex);
      return waiting[static_cast<size_t>(call)] > 0;
    });
  }
  DiskState state() { return tier->stats().state; }
  void open() { DiskFixture::open(io); }
  void reopen() {
    close();
    open();
  }
  // Puts pages until the tier stops writing.
  void put_until_read_only() {
    for (uint64_t i = 1000; state() == DiskState::on; ++i) {
      ASSERT_LT(i, 3000u) << "never became read-only";
      put(i, 50'000);
      tier->flush(Deadline::after_ms(50));
    }
  }

  struct Errors {
    int error = 0, left = 0;
  };
  std::array<Errors, 9> errors{};
  std::mutex hold_mutex;
  std::condition_variable hold_changed;
  std::array<int, 9> allowed{-1, -1, -1, -1, -1, -1, -1, -1, -1};
  std::array<int, 9> waiting{};
  HookedIo io{[this](IoCall call) {
    const auto i = static_cast<size_t>(call);
    std::unique_lock lock(hold_mutex);
    ++waiting[i];
    hold_changed.wait(lock, [&] { return allowed[i] != 0; });
    if (allowed[i] > 0) --allowed[i];
    --waiting[i];
    if (errors[i].left == 0) return 0;
    if (errors[i].left > 0) --errors[i].left;
    return -errors[i].error;
  }};
};

TEST_F(DiskFaultsTest, AFullDiskMakesTheTierReadOnlyUntilThereIsRoom) {
  open();
  store(1, 50'000);
  fail(IoCall::allocate, ENOSPC);
  put_until_read_only();
  const DiskStats stats = tier->stats();
  EXPECT_EQ(stats.state, DiskState::read_only);
  EXPECT_NE(stats.why.find("No space left"), std::string::npos) << stats.why;
  EXPECT_EQ(read(1, 50'000), PageStatus::ok) << "stored pages are still read";
  EXPECT_EQ(put(2, 50'000), PutOutcome::skipped_off);
  remove(1);
  EXPECT_FALSE(holds(1));
  EXPECT_EQ(tier->stats().removals_waiting, 1u);

  works(IoCall::allocate);
  EXPECT_TRUE(eventually([&] { return state() == DiskState::on; }));
  EXPECT_EQ(tier->stats().why, "");
  flush();
  EXPECT_EQ(tier->stats().removals_waiting, 0u) << "written when the disk takes it again";
  store(2, 50'000);
  reopen();
  EXPECT_EQ(read(2, 50'000), PageStatus::ok);
  EXPECT_FALSE(holds(1));
}

TEST_F(DiskFaultsTest, AtMostOneClearPerNamespaceWaitsForTheDisk) {
  open();
  store(0, 50'000);
  fail(IoCall::allocate, ENOSPC);
  put_until_read_only();
  for (uint64_t epoch = 2; epoch <= 1000; ++epoch) {
    for (uint64_t ns = 1; ns <= 3; ++ns) tier->drop_namespace(namespace_for(ns), epoch);
  }
  EXPECT_LE(tier->stats().removals_waiting, 3u + 1);  // a failed write may add one
  works(IoCall::allocate);
  EXPECT_TRUE(eventually([&] { return state() == DiskState::on; }));
  flush();
  reopen();
  const auto floors = tier->floors();
  for (uint64_t ns = 1; ns <= 3; ++ns) EXPECT_EQ(floors.at(namespace_for(ns)), 1000u) << ns;
}

TEST_F(DiskFaultsTest, PageWithAFailedWriteStaysAbsentAfterReopening) {
  config.sync = SyncPolicy::batch;
  open();
  store(1, 50'000);
  fail(IoCall::sync, EIO);  // the bytes are in the file, but may not survive a crash
  put(2, 50'000);
  put_until_read_only();
  EXPECT_FALSE(result(2));
  EXPECT_FALSE(holds(2));
  works(IoCall::sync);
  EXPECT_TRUE(eventually([&] { return state() == DiskState::on; }));
  flush();
  reopen();
  EXPECT_FALSE(holds(2));
  EXPECT_EQ(read(1, 50'000), PageStatus::ok);
  EXPECT_EQ(put(2, 50'000), PutOutcome::queued);
  flush();
  EXPECT_EQ(read(2, 50'000), PageStatus::ok);
}

TEST_F(DiskFaultsTest, OneFailedWriteCostsItsPagesAndNoMore) {
  open();
  store(1, 50'000);
  fail(IoCall::write, EIO, 1);
  put(2, 50'000);
  flush();
  EXPECT_FALSE(holds(2));
  EXPECT_EQ(state(), DiskState::on);
  EXPECT_EQ(tier->stats().write_errors, 1u);
  store(3, 50'000);
  reopen();
  EXPECT_EQ(read(1, 50'000), PageStatus::ok);
  EXPECT_EQ(read(3, 50'000), PageStatus::ok);
}

TEST_F(DiskFaultsTest, ReadOnlyFileSystemIsReportedWithTheRemedy) {
  open();
  store(1, 50'000);
  fail(IoCall::write, EROFS);
  put(2, 50'000);
  flush();
  EXPECT_EQ(state(), DiskState::read_only);
  EXPECT_NE(tier->stats().why.find("mount it writable"), std::string::npos);
  EXPECT_EQ(read(1, 50'000), PageStatus::ok);
}

TEST_F(DiskFaultsTest, UndeletableSegmentStopsWritesWithinTheDiskSize) {
  open();
  fail(IoCall::unlink, EPERM);
  put_until_read_only();
  uint64_t bytes = 0;
  for (const auto& file : segment_files()) bytes += std::filesystem::file_size(file);
  EXPECT_LE(bytes, config.size_bytes);
  works(IoCall::unlink);
  EXPECT_TRUE(eventually([&] { return state() == DiskState::on; }));
  store(1, 50'000);
}

TEST_F(DiskFaultsTest, UnreadablePageIsDroppedAndReportedEvicted) {
  open();
  store(1, 50'000);
  store(2, 50'000);
  fail(IoCall::read, EIO);
  EXPECT_EQ(read(1, 50'000), PageStatus::error);
  works(IoCall::read);
  EXPECT_FALSE(holds(1));
  EXPECT_TRUE(evicted_digests().contains(digest_for(1)));
  EXPECT_EQ(tier->stats().reads_failed, 1u);
  EXPECT_EQ(read(2, 50'000), PageStatus::ok);
}

TEST_F(DiskFaultsTest, StalledDiskDoesNotDelayPuts) {
  config.queue_bytes = 500'000;
  times.stall_ms = 200;
  open();
  hold(IoCall::write);
  const TimePoint begin = Clock::now();
  unsigned queued = 0;
  for (uint64_t i = 0; i < 100; ++i) queued += put(i, 50'000) == PutOutcome::queued;
  EXPECT_EQ(queued, 10u);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(5));
  EXPECT_EQ(tier->stats().skipped_full, 90u);
  EXPECT_TRUE(eventually([&] { return state() == DiskState::stalled; }));
  EXPECT_FALSE(tier->flush(Deadline::after_ms(10)));
  release(IoCall::write);
  flush();
  EXPECT_EQ(state(), DiskState::on);
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(read(i, 50'000), PageStatus::ok);
}

TEST_F(DiskFaultsTest, LateReadEndsAtItsDeadlineAndWritesNothingLater) {
  times.stall_ms = 200;
  open();
  store(1, 50'000);
  hold(IoCall::read);
  std::vector<std::byte> dest(50'000);
  DiskRead one{digest_for(1), dest.data(), 50'000, PageStatus::pending, 0};
  // On a busy machine, a read may be abandoned before a thread begins it. It then never reaches the
  // disk, so try again.
  EXPECT_TRUE(eventually([&] {
    tier->read({&one, 1}, Deadline::after_ms(20), true);
    EXPECT_EQ(one.status, PageStatus::deadline);
    std::lock_guard lock(hold_mutex);
    return waiting[static_cast<size_t>(IoCall::read)] > 0;
  }));
  EXPECT_TRUE(eventually([&] { return state() == DiskState::stalled; }));
  const TimePoint begin = Clock::now();
  tier->read({&one, 1}, Deadline::after_ms(60'000), true);
  EXPECT_EQ(one.status, PageStatus::error) << "refused at once while the disk is silent";
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
  release(IoCall::read);
  EXPECT_TRUE(eventually([&] { return state() == DiskState::on; }));
  EXPECT_EQ(read(1, 50'000), PageStatus::ok);
  EXPECT_TRUE(std::ranges::all_of(dest, [](std::byte b) { return b == std::byte{}; }));
}

TEST_F(DiskFaultsTest, UrgentReadsOvertakeOthers) {
  constexpr uint64_t kPages = 2000;
  constexpr uint32_t kBytes = 5000;  // more than a block
  config.size_bytes = 64 * kMiB;
  config.segment_bytes = 16 * kMiB;
  open();
  for (uint64_t i = 0; i <= kPages; ++i) ASSERT_EQ(put(i, kBytes), PutOutcome::queued);
  flush();
  hold(IoCall::read);
  std::vector<std::byte> dest(kPages * kBytes);
  std::vector<DiskRead> slow;
  for (uint64_t i = kPages; i-- > 0;)  // backwards, so that each is a read of its own
    slow.push_back({digest_for(i), dest.data() + i * kBytes, kBytes, PageStatus::pending, 0});
  std::thread background([&] { tier->read(slow, Deadline::after_ms(60'000), false); });
  ASSERT_TRUE(waits(IoCall::read));
  std::atomic<bool> urgent_done{false};
  std::thread urgent([&] {
    EXPECT_EQ(read(kPages, kBytes), PageStatus::ok);
    urgent_done = true;
  });
  // One read at a time: the urgent page must not wait for all the others.
  uint64_t reads = 0;
  for (; !urgent_done && reads < kPages; ++reads) {
    allow(IoCall::read, 1);
    EXPECT_TRUE(used_up(IoCall::read));
  }
  EXPECT_LT(reads, kPages);
  release(IoCall::read);
  urgent.join();
  background.join();
  for (const DiskRead& one : slow) EXPECT_EQ(one.status, PageStatus::ok);
}

TEST_F(DiskFaultsTest, FailingDiskNeverServesWrongBytes) {
  config.faults =
      "seed=5,disk_write_eio=0.02,disk_write_short=0.2,disk_sync_eio=0.02,disk_no_space=0.01,"
      "disk_read_eio=0.02,disk_read_corrupt=0.1";
  config.sync = SyncPolicy::batch;
  open();
  uint64_t right = 0;
  for (uint64_t i = 0; i < 400; ++i) {
    put(i, 60'000);
    if (i % 8 == 7) tier->flush(Deadline::after_ms(50));
    right += read(i * 7 % (i + 1), 60'000) == PageStatus::ok;
  }
  EXPECT_GT(right, 20u);
  EXPECT_GT(tier->stats().reads_corrupt, 0u);
  EXPECT_GT(tier->stats().write_errors, 0u);
  close();
  config.faults.clear();
  open();
  for (uint64_t i = 0; i < 400; ++i) {
    if (holds(i)) {
      EXPECT_EQ(read(i, 60'000), PageStatus::ok) << i;
    }
  }
}

TEST(DiskFaultPlan, InvalidDiskFaultsAreRefused) {
  EXPECT_EQ(parse_disk_faults("corrupt=0.5,disk_stall=1,disk_stall_ms=77").stall_ms, 77u);
  EXPECT_FALSE(parse_disk_faults("corrupt=0.5").any());
  EXPECT_THROW(parse_disk_faults("disk_fire=1"), std::invalid_argument);
  EXPECT_THROW(parse_disk_faults("disk_stall=2"), std::invalid_argument);
  EXPECT_THROW(parse_disk_faults("disk_stall"), std::invalid_argument);
}

}  // namespace
}  // namespace peercached::disk
