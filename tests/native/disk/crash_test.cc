// A daemon may die at any instruction. A child process is killed while it writes, at random and at
// each system call that changes the disk. It runs thousands of times over one directory on request:
//
//   PEERCACHED_DISK_CRASHES=5000 build/native/disk_test --gtest_filter='DiskCrash.*'
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "crash_ledger.h"
#include "disk/forwarding_io.h"

namespace peercached::disk {
namespace {

// Ends the process before or after the n-th call that changes the disk, or in the middle of it if
// it is a write.
class DyingIo final : public ForwardingIo {
 public:
  DyingIo(uint64_t last_call, unsigned how)
      : ForwardingIo(posix_io()), left_(static_cast<int64_t>(last_call)), how_(how) {}

  int open(const std::string& path, int flags, mode_t mode) override {
    if (!(flags & O_CREAT)) return ForwardingIo::open(path, flags, mode);
    return around([&] { return ForwardingIo::open(path, flags, mode); });
  }
  ssize_t pwrite(int fd, const std::byte* from, size_t bytes, uint64_t offset) override {
    const int64_t left = left_.fetch_sub(1);
    if (left == 1 && how_ == 0) ::_exit(kDied);
    if (left == 1 && how_ == 1 && bytes > 4096) bytes = bytes / 4096 / 2 * 4096;  // a torn write
    const ssize_t written = ForwardingIo::pwrite(fd, from, bytes, offset);
    if (left == 1) ::_exit(kDied);
    return written;
  }
  int fdatasync(int fd) override {
    return around([&] { return ForwardingIo::fdatasync(fd); });
  }
  int sync_directory(const std::string& path) override {
    return around([&] { return ForwardingIo::sync_directory(path); });
  }
  int allocate(int fd, uint64_t bytes) override {
    return around([&] { return ForwardingIo::allocate(fd, bytes); });
  }
  int truncate(int fd, uint64_t bytes) override {
    return around([&] { return ForwardingIo::truncate(fd, bytes); });
  }
  int rename(const std::string& from, const std::string& to) override {
    return around([&] { return ForwardingIo::rename(from, to); });
  }
  int unlink(const std::string& path) override {
    return around([&] { return ForwardingIo::unlink(path); });
  }

  static constexpr int kDied = 9;

 private:
  template <typename Call>
  int around(Call&& call) {
    const int64_t left = left_.fetch_sub(1);
    if (left == 1 && how_ == 0) ::_exit(kDied);
    const int result = call();
    if (left == 1) ::_exit(kDied);
    return result;
  }
  std::atomic<int64_t> left_;
  const unsigned how_;
};

class DiskCrash : public DiskFixture {
 protected:
  DiskCrash() {
    config.size_bytes = kMiB;
    config.segment_bytes = 64 * kKiB;
  }
  static unsigned rounds(unsigned quick) {
    const char* asked = std::getenv("PEERCACHED_DISK_CRASHES");
    return asked == nullptr ? quick : static_cast<unsigned>(std::atoi(asked));
  }

  // Runs the workload in a child and returns after its death. `parent` may kill it.
  template <typename Parent>
  void live_and_die(Io& io, unsigned seed, unsigned steps, Parent&& parent) {
    close();
    config.sync = static_cast<SyncPolicy>(seed % 3);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        open(io);
        crash_workload(*tier, *ledger, seed, steps);
        close();
        ::_exit(0);
      } catch (const DiskError&) {
        ::_exit(3);  // the directory was incomplete; not counted as a death
      }
    }
    parent(child);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) || WTERMSIG(status) == SIGKILL) << "it crashed: " << status;
    died += !WIFEXITED(status) || WEXITSTATUS(status) == DyingIo::kDied;
    open();
    // Eviction starts early, and each life leaves a segment that is not full.
    check_ledger(*tier, *ledger, config.size_bytes / 4);
  }

  CrashLedger* ledger = CrashLedger::make();
  unsigned died = 0;
};

TEST_F(DiskCrash, KilledAtEveryCallThatChangesTheDisk) {
  const unsigned count = rounds(60);
  for (unsigned round = 0; round < count && !HasFatalFailure() && !HasNonfatalFailure(); ++round) {
    DyingIo io(1 + round / 3 * 7 % 150, round % 3);  // 7 and 150 are coprime
    live_and_die(io, round, 100, [](pid_t) {});
  }
  EXPECT_GE(died, count * 3 / 4);
  EXPECT_GT(ledger->checks, count);
}

TEST_F(DiskCrash, KilledAtRandom) {
  const unsigned count = rounds(40);
  std::mt19937_64 random(1);
  for (unsigned round = 0; round < count && !HasFatalFailure() && !HasNonfatalFailure(); ++round) {
    live_and_die(posix_io(), round, 100'000, [&](pid_t child) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
      ::kill(child, SIGKILL);
    });
  }
  EXPECT_GE(died, count / 2);
  EXPECT_GT(ledger->checks, count);
}

}  // namespace
}  // namespace peercached::disk
