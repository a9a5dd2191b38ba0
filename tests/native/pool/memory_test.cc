// The pool's memory: an impossible request is refused at startup, with a remedy.
#include "pool/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

namespace peercached {
namespace {

std::string refusal(uint64_t size_bytes, bool huge_pages) {
  try {
    PoolMemory memory(size_bytes, huge_pages, 0);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(PoolMemory, PoolLargerThanMemoryIsRefusedWithTheRemedy) {
  const std::string text = refusal(uint64_t{1} << 50, false);
  EXPECT_NE(text.find("pool_size is 1125899906842624 bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("of memory are available"), std::string::npos) << text;
  EXPECT_NE(text.find("lower pool_size"), std::string::npos) << text;
}

TEST(PoolMemory, SmallerThanOneMebibyteIsRefused) {
  const std::string text = refusal(1000, false);
  EXPECT_NE(text.find("pool_size is 1000 bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("at least 1 MiB"), std::string::npos) << text;
}

TEST(PoolMemory, MissingHugePagesAreAnErrorAndNoFallback) {
  const std::string text = refusal(uint64_t{1} << 50, true);
  EXPECT_NE(text.find("huge pages"), std::string::npos) << text;
  EXPECT_NE(text.find("vm.nr_hugepages"), std::string::npos) << text;
}

uint64_t resident_bytes(const PoolMemory& memory) {
  std::vector<unsigned char> pages(memory.size_bytes() / 4096);
  EXPECT_EQ(mincore(memory.base(), memory.size_bytes(), pages.data()), 0);
  return 4096 *
         static_cast<uint64_t>(std::ranges::count_if(pages, [](auto page) { return page & 1; }));
}

TEST(PoolMemory, IsThereBeforeFirstUse) {
  PoolMemory memory((8 << 20) + 100, false, 1);
  EXPECT_EQ(memory.size_bytes(), uint64_t{8} << 20);
  EXPECT_EQ(memory.ready_bytes(), memory.size_bytes());
  EXPECT_EQ(resident_bytes(memory), memory.size_bytes());
}

TEST(PoolMemory, LargeOneIsTouchedPartByPart) {
  constexpr uint64_t kPart = 64 << 20;
  PoolMemory memory(2 * kPart + (8 << 20), false, 1);
  for (const uint64_t ready : {kPart, 2 * kPart, memory.size_bytes()}) {
    EXPECT_EQ(memory.ready_bytes(), ready);
    EXPECT_EQ(resident_bytes(memory), ready);
    memory.touch_more();
  }
}

}  // namespace
}  // namespace peercached
