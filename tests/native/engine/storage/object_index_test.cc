// The index of pages in the object store.

#include "engine/storage/object_index.h"

#include <gtest/gtest.h>

namespace peercached {
namespace {

ObjectEntry indexed_page(uint64_t number, uint32_t length = 100) {
  return {{number, 7}, number, static_cast<uint32_t>(number * 128), length};
}
StoredObject stored_object(uint64_t name, uint64_t namespace_id = 1, uint64_t epoch = 5,
                           Born generation = 0) {
  return {{name, 9}, {namespace_id, 3}, epoch, generation};
}

TEST(ObjectIndex, NewerObjectReplacesThePlaceOfAPage) {
  ObjectIndex index;
  EXPECT_TRUE(index.empty());
  const ObjectEntry first[] = {indexed_page(1), indexed_page(2)};
  const ObjectEntry second[] = {indexed_page(2, 200), indexed_page(3)};
  EXPECT_TRUE(index.add(stored_object(1), first));
  EXPECT_TRUE(index.add(stored_object(2), second));
  EXPECT_TRUE(index.add(stored_object(2), first)) << "the object is known already";
  EXPECT_EQ(index.find({2, 7})->entry.length, 200u);
  EXPECT_EQ(index.object(index.find({1, 7})->object).name, stored_object(1).name);
  EXPECT_EQ(index.stats().pages, 3u);
  EXPECT_EQ(index.stats().bytes, 400u);
  for (const auto& [name, bytes] : index.objects())
    EXPECT_EQ(bytes, name == stored_object(1).name ? 100u : 300u);
  const Digest gone[] = {{1, 7}, {4, 7}};
  index.drop(gone);
  EXPECT_EQ(index.stats().objects, 1u) << "no page of the first object is left";
  EXPECT_FALSE(index.find({1, 7}));
}

TEST(ObjectIndex, PagesBehindOneInItsObject) {
  ObjectIndex index;
  ObjectEntry first[6];
  for (uint64_t n = 0; n < 6; ++n) first[n] = indexed_page(n);
  const ObjectEntry second[] = {indexed_page(2)};
  index.add(stored_object(1), first);
  index.add(stored_object(2), second);
  const Digest gone[] = {{4, 7}};
  index.drop(gone);
  const auto behind = [&](uint64_t number, uint64_t bytes) {
    std::vector<uint64_t> numbers;
    for (const ObjectEntry& entry : index.behind({number, 7}, bytes))
      numbers.push_back(entry.digest.hi);
    return numbers;
  };
  EXPECT_EQ(behind(0, 1000), (std::vector<uint64_t>{1, 3, 5}));
  EXPECT_EQ(behind(0, 3 * 128 + 100), (std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(behind(2, 1000), std::vector<uint64_t>()) << "it is alone in the newer object";
  EXPECT_EQ(behind(4, 1000), std::vector<uint64_t>());
}

TEST(ObjectIndex, PagesOfVanishedObjectsAndOfLowerEpochsAndGenerationsLeave) {
  ObjectIndex index;
  const ObjectEntry one[] = {indexed_page(1)}, two[] = {indexed_page(2)},
                    three[] = {indexed_page(3)}, four[] = {indexed_page(4)},
                    five[] = {indexed_page(5)};
  index.add(stored_object(1, 1, 5), one);
  index.add(stored_object(2, 1, 6), two);
  index.add(stored_object(3, 2, 5), three);
  index.add(stored_object(4, 2, 5), four);
  index.add(stored_object(5, 1, 6, 7), five);
  index.drop_below({1, 3}, 6, 0);
  const Digest vanished[] = {stored_object(4).name, stored_object(99).name};
  index.drop_objects(vanished);
  EXPECT_FALSE(index.find({1, 7}));
  EXPECT_TRUE(index.find({2, 7}));
  EXPECT_TRUE(index.find({3, 7}));
  EXPECT_FALSE(index.find({4, 7}));
  EXPECT_EQ(index.stats().objects, 3u);
  index.drop_below({1, 3}, 6, 7);
  EXPECT_FALSE(index.find({2, 7}));
  EXPECT_TRUE(index.find({5, 7}));
  EXPECT_TRUE(index.add(stored_object(4), four)) << "it may come back";
  EXPECT_TRUE(index.find({4, 7}));
}

TEST(ObjectIndex, FullIndexTakesNoObject) {
  ObjectIndex index;
  std::vector<ObjectEntry> many(ObjectIndex::kPagesMax);
  for (size_t i = 0; i < many.size(); ++i) {
    many[i] = indexed_page(i);
    many[i].digest = {i, i * 0x9e3779b97f4a7c15};  // spread as real digests are
  }
  EXPECT_TRUE(index.add(stored_object(1), many));
  const ObjectEntry one[] = {indexed_page(ObjectIndex::kPagesMax)};
  EXPECT_FALSE(index.add(stored_object(2), one));
}

TEST(ObjectIndex, IsVouchedForUntilATime) {
  ObjectIndex index;
  EXPECT_FALSE(index.vouched());
  index.vouch_until(Clock::now() + std::chrono::hours(1));
  EXPECT_TRUE(index.vouched());
  index.vouch_until(Clock::now());
  EXPECT_FALSE(index.vouched());
}

}  // namespace
}  // namespace peercached
