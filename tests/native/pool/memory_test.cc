// The pool's memory: an impossible request is refused at startup, with a remedy.
#include "pool/memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace peercached {
namespace {

std::string refusal(uint64_t size_bytes, bool huge_pages) {
  try {
    PoolMemory memory(size_bytes, huge_pages);
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

TEST(PoolMemory, IsThereBeforeFirstUse) {
  PoolMemory memory((8 << 20) + 100, false);
  EXPECT_EQ(memory.size_bytes(), uint64_t{8} << 20);
  std::vector<unsigned char> resident(memory.size_bytes() / 4096);
  ASSERT_EQ(mincore(memory.base(), memory.size_bytes(), resident.data()), 0);
  for (unsigned char page : resident) ASSERT_EQ(page & 1, 1);
}

}  // namespace
}  // namespace peercached
