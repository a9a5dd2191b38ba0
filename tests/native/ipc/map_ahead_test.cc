// New regions are mapped in the background, as far as the worker has touched them.
#include "ipc/map_ahead.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc_fixture.h"

namespace peercached {
namespace {

constexpr uint64_t kPage = 4096, kMiB = 1 << 20;

// Whether this process has a page table entry for that page.
bool is_mapped(const std::byte* at) {
  const UniqueFd map(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  uint64_t entry = 0;
  const auto place = static_cast<off_t>(reinterpret_cast<uintptr_t>(at) / kPage * sizeof(entry));
  EXPECT_EQ(::pread(map.get(), &entry, sizeof(entry), place), ssize_t{sizeof(entry)});
  return entry >> 63 != 0;
}

uint64_t file_bytes(int fd) {
  struct stat status;
  ::fstat(fd, &status);
  return static_cast<uint64_t>(status.st_blocks) * 512;
}

TEST(MapAhead, TouchedPagesAreMappedAndNoOthersAreMade) {
  Memory memory(40 * kMiB);
  std::memset(memory.at, 'x', 3 * kPage);
  std::memset(memory.at + 39 * kMiB, 'x', kPage);
  FakeHandler handler;
  ipc::MapAhead ahead;
  const auto region = std::make_shared<ipc::Region>(1, memory.fd, 40 * kMiB, handler);
  ahead.add(region);
  const std::byte* base = region->memory->base();
  EXPECT_TRUE(eventually([&] { return is_mapped(base + 39 * kMiB); }));
  EXPECT_TRUE(is_mapped(base + 2 * kPage));
  EXPECT_FALSE(is_mapped(base + 3 * kPage));
  EXPECT_EQ(file_bytes(memory.fd.get()), 4 * kPage);
  EXPECT_FALSE(region->mapped_ahead) << "to be mapped again at its first use";
  Memory touched(20 * kMiB);
  std::memset(touched.at, 'x', touched.bytes);
  const auto whole = std::make_shared<ipc::Region>(2, touched.fd, touched.bytes, handler);
  ahead.add(whole);
  EXPECT_TRUE(eventually([&] { return whole->mapped_ahead.load(); }));
}

// mincore() then says of all pages that they are there.
TEST(MapAhead, FileOfAnotherUserThatMayNotBeWrittenIsLeftAlone) {
  Memory memory(40 * kMiB);
  FakeHandler handler;
  EXPECT_TRUE(ipc::Region(1, memory.fd, 40 * kMiB, handler).memory->tells_pages());
  ASSERT_EQ(::fchmod(memory.fd.get(), 0600), 0);
  if (::geteuid() != 0) GTEST_SKIP() << "it takes root to become another user";
  ASSERT_EQ(::seteuid(65534), 0);
  const bool tells = ipc::Region(2, memory.fd, 40 * kMiB, handler).memory->tells_pages();
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_FALSE(tells);
}

}  // namespace
}  // namespace peercached
