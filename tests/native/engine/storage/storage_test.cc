// The pages on this node, from their start to their end.

#include "engine/storage/storage.h"

#include <gtest/gtest.h>

namespace peercached {
namespace {

class StorageTest : public ::testing::Test {
 protected:
  static EngineConfig config() {
    EngineConfig config;
    config.node_id = "a";
    config.incarnation = 'a';
    config.pool_bytes = 4 << 20;
    return config;
  }
  void set(const Digest& digest) {
    const PageRequest request{digest, 4096};
    Reservation reservation;
    storage_.pool().reserve({&request, 1}, nullptr, 1, {&reservation, 1});
    ASSERT_EQ(reservation.outcome, ReserveOutcome::reserved);
    reservation.page.checksum = 7;
    RecordRow row;
    storage_.pool().commit({&reservation.page, 1}, {&row, 1});
    storage_.pool().unpin({&reservation.page, 1});
  }

  std::vector<RecordRow> told_;
  Janitor janitor_;
  Storage storage_{config(), janitor_, [this](std::span<const RecordRow> rows) {
                     told_.insert(told_.end(), rows.begin(), rows.end());
                   }};
};

TEST_F(StorageTest, EvictionsAreToldFromBeginTellingUntilTheEnd) {
  set({1, 1});
  EXPECT_EQ(storage_.pool().evict_coldest(1).pages, 1u);
  EXPECT_TRUE(told_.empty()) << "nobody was told of the page";
  storage_.begin_withdrawing();
  set({2, 2});
  EXPECT_EQ(storage_.pool().evict_coldest(1).pages, 1u);
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].digest, (Digest{2, 2}));
  storage_.end();
  set({3, 3});
  EXPECT_EQ(storage_.pool().evict_coldest(1).pages, 1u);
  EXPECT_EQ(told_.size(), 1u) << "the owners may be gone";
}

TEST_F(StorageTest, AnEpochRisesOnce) {
  const Digest id = storage_.namespaces().id_of("ns");
  EXPECT_TRUE(storage_.raise_epoch(id, 2));
  EXPECT_FALSE(storage_.raise_epoch(id, 2));
  EXPECT_FALSE(storage_.raise_epoch(id, 1));
}

}  // namespace
}  // namespace peercached
