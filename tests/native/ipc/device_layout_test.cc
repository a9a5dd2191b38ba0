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
constexpr uint64_t kRow = 100, kTokens = 4, kPage = 2 * kTokens * kRow, kLayer = 8 * kTokens * kRow;

struct Layouts : ::testing::Test {
  Allocation memory{2 * kLayer}, other{2 * kLayer};
  DeviceLayout layout{{{{0, kTokens* kRow, kRow, kTokens, kRow, 0, 2 * kRow}, &memory},
                       {{kLayer, kTokens* kRow, kRow, kTokens, kRow, kRow, 2 * kRow}, &memory}}};

  uint64_t changed(const std::function<void(DeviceLayout::Rows&)>& change) {
    DeviceLayout wrong = layout;
    change(wrong.rows[1]);
    return page_numbers(wrong, kPage);
  }
};

TEST_F(Layouts, HaveThePagesThatFitIntoTheMemory) {
  EXPECT_EQ(page_numbers(layout, kPage), 8u);
  EXPECT_EQ(changed([](auto& rows) { rows.at += 1; }), 7u);
  EXPECT_EQ(changed([](auto& rows) { rows.page_stride *= 2; }), 4u);
  EXPECT_EQ(changed([&](auto& rows) { rows.memory = &other; }), 8u);
}

TEST_F(Layouts, MayInterleaveTheirRowsInMemory) {
  // Token by token in memory as well.
  DeviceLayout mixed{{{{0, kPage, kRow, kTokens, 2 * kRow, 0, 2 * kRow}, &memory},
                      {{kRow, kPage, kRow, kTokens, 2 * kRow, kRow, 2 * kRow}, &memory}}};
  EXPECT_EQ(page_numbers(mixed, kPage), 8u);
}

TEST_F(Layouts, ThatDoNotFillAPageAreWrong) {
  EXPECT_EQ(page_numbers(layout, kPage - 1), 0u);
  EXPECT_EQ(page_numbers(layout, kPage + 1), 0u);
  EXPECT_EQ(changed([](auto& rows) { rows.page_at = 0; }), 0u) << "two rows at one place";
  EXPECT_EQ(changed([](auto& rows) { rows.page_at += 1; }), 0u) << "beyond the end";
  EXPECT_EQ(changed([](auto& rows) { rows.page_pitch = 0; }), 0u);
  EXPECT_EQ(changed([](auto& rows) { rows.page_pitch = UINT64_MAX; }), 0u);
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
}

TEST_F(Layouts, BeyondTheirMemoryAreWrong) {
  EXPECT_EQ(changed([](auto& rows) { rows.at = 2 * kLayer - kRow; }), 0u);
  EXPECT_EQ(changed([](auto& rows) { rows.at = UINT64_MAX - 1; }), 0u);
  EXPECT_EQ(changed([](auto& rows) { rows.row_pitch = UINT64_MAX / 2; }), 0u);
  EXPECT_EQ(changed([](auto& rows) { rows.page_stride = UINT64_MAX; }), 1u) << "page 0 fits";
}

}  // namespace
}  // namespace peercached::ipc
