#include "ipc/device_layout.h"

#include <gtest/gtest.h>

#include <functional>

namespace peercached::ipc {
namespace {

struct Allocation final : device::Memory {
  explicit Allocation(uint64_t size) : size_(size) {}
  uint64_t bytes() const override { return size_; }
  const device::DeviceId& device() const override { return id_; }

 private:
  uint64_t size_;
  device::DeviceId id_{};
};

// Two layers of eight pages. A page has four tokens, each of both layers: rows of 100 bytes.
constexpr uint32_t kRow = 100, kTokens = 4, kPage = 2 * kTokens * kRow, kLayer = 8 * kTokens * kRow;

struct Layouts : ::testing::Test {
  Allocation memory{2 * kLayer}, other{2 * kLayer};
  DeviceLayout layout{{{{0, kTokens* kRow, kRow, kRow, kTokens, 0, 2 * kRow}, &memory},
                       {{kLayer, kTokens* kRow, kRow, kRow, kTokens, kRow, 2 * kRow}, &memory}}};

  static uint64_t pages_of(DeviceLayout one, uint64_t last = 7) {
    one.last = last;
    count_pages({&one, 1});
    EXPECT_TRUE(one.pages == 0 || one.page_bytes == kPage);
    return one.pages;
  }
  uint64_t changed(const std::function<void(DeviceLayout::Rows&)>& change) {
    DeviceLayout wrong = layout;
    change(wrong.rows[1]);
    return pages_of(wrong);
  }
};

TEST_F(Layouts, HaveThePagesThatFitIntoTheMemory) {
  EXPECT_EQ(pages_of(layout), 8u);
  EXPECT_EQ(changed([](auto& rows) { rows.at += 1; }), 7u);
  EXPECT_EQ(pages_of(layout, 100), 8u);
  EXPECT_EQ(changed([&](auto& rows) { rows.memory = &other; }), 8u);
}

TEST_F(Layouts, MayInterleaveTheirRowsInMemory) {
  // Token by token in memory as well.
  DeviceLayout mixed{{{{0, kPage, 2 * kRow, kRow, kTokens, 0, 2 * kRow}, &memory},
                      {{kRow, kPage, 2 * kRow, kRow, kTokens, kRow, 2 * kRow}, &memory}}};
  EXPECT_EQ(pages_of(mixed), 8u);
}

TEST_F(Layouts, ThatDoNotFillAPageAreWrong) {
  EXPECT_EQ(changed([](auto& rows) { rows.row_bytes -= 1; }), 0u) << "a hole";
  EXPECT_EQ(changed([](auto& rows) { rows.page_at = 0; }), 0u) << "two rows at one place";
  EXPECT_EQ(changed([](auto& rows) { rows.page_at += 1; }), 0u) << "beyond the end";
  EXPECT_EQ(changed([](auto& rows) { rows.page_pitch = 0; }), 0u);
  EXPECT_EQ(changed([](auto& rows) { rows.page_pitch = UINT32_MAX; }), 0u);
  EXPECT_EQ(changed([](auto& rows) { rows.row_bytes = 0; }), 0u);
  EXPECT_EQ(changed([](auto& rows) { rows.rows = 0; }), 0u);
  EXPECT_EQ(changed([](auto& rows) { rows.rows = UINT32_MAX; }), 0u);
}

TEST_F(Layouts, ThatOverlapInMemoryAreWrong) {
  EXPECT_EQ(changed([](auto& rows) { rows.at = 0; }), 0u) << "two layers at one place";
  EXPECT_EQ(changed([](auto& rows) { rows.at = kRow - 1; }), 0u);
  EXPECT_EQ(changed([](auto& rows) { rows.row_pitch = kRow - 1; }), 0u);
  EXPECT_EQ(changed([](auto& rows) { rows.page_stride = 0; }), 0u) << "all pages at one place";
  EXPECT_EQ(changed([](auto& rows) { rows.page_stride -= 1; }), 0u);
  EXPECT_EQ(changed([](auto& rows) { rows.at -= kTokens * kRow; }), 0u)
      << "page 7 and the next layer";
  EXPECT_EQ(changed([](auto& rows) { rows.row_pitch = 0; }), 0u);
}

TEST_F(Layouts, OverlapOnlyWithPagesThatAreUsed) {
  layout.rows[1].at -= 2 * kTokens * kRow;
  EXPECT_EQ(pages_of(layout, 5), 10u);
  EXPECT_EQ(pages_of(layout, 6), 0u);
  // Other distances between pages, in the same memory.
  layout.rows[1].at = kTokens * kRow;
  layout.rows[1].page_stride *= 2;
  EXPECT_EQ(pages_of(layout, 0), 8u);
  EXPECT_EQ(pages_of(layout, 1), 0u);
}

TEST_F(Layouts, OfOneRequestMayNotOverlapInMemory) {
  std::vector<DeviceLayout> two(2, layout);
  for (DeviceLayout& one : two) one.last = 7;
  count_pages(two);
  EXPECT_EQ(two[0].pages, 0u);
  for (DeviceLayout::Rows& rows : two[1].rows) rows.memory = &other;
  count_pages(two);
  EXPECT_EQ(two[0].pages, 8u);
  EXPECT_EQ(two[1].pages, 8u);
  two[1].rows[0].page_at = kRow;  // a hole
  count_pages(two);
  EXPECT_EQ(two[0].pages, 8u);
  EXPECT_EQ(two[1].pages, 0u);
}

TEST_F(Layouts, GiveTheRowsOfAStage) {
  layout.rows[1].stage = 3;
  EXPECT_EQ(layout.of_stage(0).data(), &layout.rows[0]);
  EXPECT_EQ(layout.of_stage(3).data(), &layout.rows[1]);
  EXPECT_EQ(layout.of_stage(3).size(), 1u);
  EXPECT_TRUE(layout.of_stage(1).empty());
  EXPECT_EQ(changed([](auto& rows) { rows.stage = kRowsMax; }), 0u);
}

TEST_F(Layouts, BeyondTheirMemoryAreWrong) {
  EXPECT_EQ(changed([](auto& rows) { rows.at = 2 * kLayer - kRow; }), 0u);
  EXPECT_EQ(changed([](auto& rows) { rows.at = UINT64_MAX - 1; }), 0u);
  EXPECT_EQ(changed([](auto& rows) { rows.row_pitch = UINT64_MAX / 2; }), 0u);
  EXPECT_EQ(changed([](auto& rows) { rows.page_stride = UINT64_MAX; }), 1u) << "page 0 fits";
}

}  // namespace
}  // namespace peercached::ipc
