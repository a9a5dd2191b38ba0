#include "shard/cells.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "shard/reserved_memory.h"

namespace peercached {
namespace {

constexpr uint32_t kCells = 10'000;

struct CellsAhead : testing::Test {
  CellsAhead() : memory(Cells::bytes_for(kCells), "the test") {
    cells.place(memory.base(), kCells);
  }
  void take(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) cells.store(cells.take(), PackedRecord{});
  }
  size_t bytes_resident() const {
    std::vector<unsigned char> pages(Cells::bytes_for(kCells) / kPageBytes);
    EXPECT_EQ(mincore(memory.base(), pages.size() * kPageBytes, pages.data()), 0);
    return kPageBytes * static_cast<size_t>(std::count_if(pages.begin(), pages.end(),
                                                          [](unsigned char p) { return p & 1; }));
  }

  ReservedMemory memory;
  Cells cells;
};

TEST_F(CellsAhead, HaveMemoryBeforeTheyAreTaken) {
  take(100);
  EXPECT_FALSE(cells.ready(200));
  cells.make_ready(200);
  EXPECT_TRUE(cells.ready(200));
  EXPECT_EQ(cells.bytes(), Cells::bytes_for(300));
  EXPECT_EQ(bytes_resident(), cells.bytes());
  cells.make_ready(50);
  EXPECT_EQ(cells.bytes(), Cells::bytes_for(300)) << "they have it";
  take(200);
  EXPECT_EQ(cells.bytes(), Cells::bytes_for(300));
  take(100);
  EXPECT_EQ(cells.bytes(), Cells::bytes_for(400)) << "more than were made ready";
}

TEST_F(CellsAhead, NeverExceedTheCapacity) {
  take(kCells - 10);
  cells.make_ready(kCells);
  EXPECT_EQ(cells.bytes(), Cells::bytes_for(kCells));
  EXPECT_TRUE(cells.ready(kCells)) << "or it would be asked for again and again";
}

TEST_F(CellsAhead, LoseTheirMemoryWhenTheGapsAreClosed) {
  take(1000);
  cells.make_ready(500);
  cells.close_up(1000);
  EXPECT_EQ(cells.bytes(), Cells::bytes_for(1500)) << "there were none";
  cells.close_up(200);
  EXPECT_EQ(cells.bytes(), Cells::bytes_for(200));
  EXPECT_FALSE(cells.ready(500));
}

}  // namespace
}  // namespace peercached
