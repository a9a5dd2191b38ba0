// All I/O paths of the tier give the same pages: io_uring or threads, direct or through the page
// cache.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "disk/forwarding_io.h"
#include "disk_fixture.h"

namespace peercached::disk {
namespace {

class DiskIoPaths : public DiskFixture {
 protected:
  // Writes pages and reads them back, also after reopening, both times over I/O path `how`.
  void use(const std::string& how, Io& io) {
    for (int life = 0; life < 2; ++life) {
      open(io);
      for (uint64_t i = 0; life == 0 && i < 20; ++i) store(i, 50'000 + static_cast<uint32_t>(i));
      for (uint64_t i = 0; i < 20; ++i)
        EXPECT_EQ(read(i, 50'000 + static_cast<uint32_t>(i)), PageStatus::ok) << i;
      EXPECT_NE(tier->stats().io.find(how), std::string::npos) << tier->stats().io;
      close();
    }
  }
};

// Like file systems that do not support O_DIRECT.
class NotDirectIo final : public ForwardingIo {
 public:
  NotDirectIo() : ForwardingIo(posix_io()) {}
  int open(const std::string& path, int flags, mode_t mode) override {
    return flags & O_DIRECT ? -EINVAL : ForwardingIo::open(path, flags, mode);
  }
};

TEST_F(DiskIoPaths, UsesThePageCacheWithoutDirectIo) {
  NotDirectIo io;
  use("buffered, ", io);
}

// Like most container runtimes. Returns 0 on success.
int forbid_io_uring() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(filter), filter};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

TEST_F(DiskIoPaths, UsesThreadsWhenIoUringIsForbidden) {
  constexpr int kNoFilters = 77;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (forbid_io_uring() != 0) ::_exit(kNoFilters);
    use(", threads", posix_io());
    ::_exit(HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  if (WEXITSTATUS(status) == kNoFilters) GTEST_SKIP() << "no seccomp filters here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(DiskIoPaths, RemovedFolderStopsWritingAndIsReported) {
  times.probe_ms_min = times.probe_ms_max = 10;
  open();
  store(1, 50'000);
  std::filesystem::remove_all(config.path);
  for (uint64_t i = 2; tier->stats().state == DiskState::on; ++i) {
    ASSERT_LT(i, 3000u) << "never noticed";
    put(i, 50'000);
    tier->flush(Deadline::after_ms(50));
  }
  // For a moment it may see a folder without its files.
  const auto says_why = [&] {
    return tier->stats().why.find("the directory is gone; put it back") != std::string::npos;
  };
  EXPECT_TRUE(eventually(says_why)) << tier->stats().why;
  EXPECT_EQ(read(1, 50'000), PageStatus::ok) << "its file is open still";
  EXPECT_EQ(put(5000, 50'000), PutOutcome::skipped_off);
}

}  // namespace
}  // namespace peercached::disk
