// Hashing of digests that an attacker has chosen.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "common/types.h"

namespace peercached {
namespace {

constexpr uint64_t kDigests = 20'000, kPlaces = 1 << 16;

size_t places_of(const std::function<Digest(uint64_t)>& chosen) {
  std::set<uint64_t> low, high;
  for (uint64_t i = 0; i < kDigests; ++i) {
    low.insert(table_hash(chosen(i)) % kPlaces);
    high.insert((table_hash(chosen(i)) >> 32) * kPlaces >> 32);
  }
  return std::min(low.size(), high.size());
}

// 20,000 random digests would take about 17,250 places.
TEST(TableHash, DigestsWithSharedBitsStillSpread) {
  EXPECT_GT(places_of([](uint64_t i) { return Digest{0, i << 32}; }), 10'000u);
  EXPECT_GT(places_of([](uint64_t i) { return Digest{0, i << 48 | 7}; }), 10'000u);
  EXPECT_GT(places_of([](uint64_t i) { return Digest{0, i}; }), 10'000u);
  EXPECT_GT(places_of([](uint64_t i) { return Digest{0, i * 1'000'003}; }), 10'000u);
}

}  // namespace
}  // namespace peercached
