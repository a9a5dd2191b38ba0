// The index against a plain map, over random operations.
#include "disk/index.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <unordered_map>

#include "disk/format.h"

namespace peercached::disk {
namespace {

struct ByLo {
  size_t operator()(const Digest& digest) const { return digest.lo; }
};

TEST(DiskIndex, AgreesWithAMapOverRandomOperations) {
  NamespaceNumbers namespaces;
  Index index(namespaces);
  std::unordered_map<Digest, IndexEntry, ByLo> model;
  std::mt19937_64 random(11);
  uint64_t sequence = 0;
  for (int step = 0; step < 300'000; ++step) {
    // All in two shards, with hashes that crowd at both ends of the table.
    const uint64_t n = random() % 3000;
    const Digest digest{n % 2,
                        (n * 0x9e3779b97f4a7c15ULL) | (n % 5 == 0 ? 0xffff0000'00000000 : 0)};
    if (random() % 2) {
      DiskPage page;
      page.digest = digest;
      page.namespace_id = {0, n % 7};
      page.length = static_cast<uint32_t>(1 + n);
      IndexEntry entry;
      entry.sequence = ++sequence;
      entry.length = page.length;
      EXPECT_EQ(index.insert(page, {sequence, 1, 0}), !model.contains(digest));
      model.try_emplace(digest, entry);
    } else {
      EXPECT_EQ(index.change(digest, [](IndexEntry&) { return Index::Verdict::erase; }),
                model.erase(digest) == 1);
    }
    const auto found = index.find(digest);
    ASSERT_EQ(found.has_value(), model.contains(digest));
    if (found) {
      ASSERT_EQ(found->entry.sequence, model[digest].sequence);
      ASSERT_EQ(found->page.namespace_id.lo, n % 7);
    }
    if (step % 30'000 == 0) {
      // Erasing during a scan sees every entry.
      std::map<Digest, int> seen;
      index.scan([&](const IndexEntry& entry) {
        ++seen[entry.digest];
        if (entry.sequence % 3 != 0) return Index::Verdict::keep;
        EXPECT_EQ(model.erase(entry.digest), 1u);
        return Index::Verdict::erase;
      });
      for (const auto& [one, entry] : model) EXPECT_TRUE(seen.contains(one));
      std::map<uint64_t, uint64_t> bytes;
      for (const auto& [one, entry] : model)
        bytes[(entry.length - 1) % 7] += page_room(entry.length);
      for (uint64_t ns = 0; ns < 7; ++ns)
        EXPECT_EQ(namespaces.use_of({0, ns}).room_bytes, bytes[ns]);
      EXPECT_EQ(index.totals().pages, model.size());
    }
  }
}

TEST(DiskIndex, ScanInPartsSeesEachPageThatStaysWhileOthersComeAndGo) {
  NamespaceNumbers namespaces;
  Index index(namespaces);
  std::mt19937_64 random(5);
  const auto insert = [&](uint64_t n) {
    DiskPage page;
    page.digest = {n % 2, n * 0x9e3779b97f4a7c15ULL};
    index.insert(page, {n, 1, 0});
  };
  const auto erase = [&](uint64_t n) {
    index.change({n % 2, n * 0x9e3779b97f4a7c15ULL},
                 [](IndexEntry&) { return Index::Verdict::erase; });
  };
  constexpr uint64_t kStay = 20'000;
  for (uint64_t n = 1; n <= 2 * kStay; ++n) insert(n);
  std::map<Digest, int> seen;
  uint64_t at = 0, others = 2 * kStay;
  size_t largest = 0;
  std::vector<DiskPage> pages;
  for (bool more = true; more;) {
    pages.clear();
    more = index.next_pages(at, pages);
    largest = std::max(largest, pages.size());
    for (const DiskPage& page : pages) ++seen[page.digest];
    // The tables grow meanwhile, and pages move back in them.
    for (int i = 0; i < 2000; ++i) insert(++others);
    for (int i = 0; i < 1000; ++i) erase(kStay + 1 + random() % kStay);
  }
  for (uint64_t n = 1; n <= kStay; ++n) {
    ASSERT_EQ(seen[(Digest{n % 2, n * 0x9e3779b97f4a7c15ULL})], 1) << n;
  }
  EXPECT_LT(largest, 1200u) << "a part is a small piece of a table";
}

TEST(DiskIndex, NeedsAtMost115BytesAPage) {
  NamespaceNumbers namespaces;
  Index index(namespaces);
  std::mt19937_64 random(3);
  for (uint64_t n = 1; n <= 300'000; ++n) {
    DiskPage page;
    page.digest = {random(), random()};
    index.insert(page, {.sequence = n});
    if (n >= 100'000 && n % 1000 == 0) {
      ASSERT_LE(index.totals().bytes, 115 * n) << n;
    }
  }
}

TEST(DiskIndex, ADroppedEpochIsNotFound) {
  NamespaceNumbers namespaces;
  Index index(namespaces);
  for (uint64_t epoch = 1; epoch <= 3; ++epoch) {
    DiskPage page;
    page.digest = {1, epoch};
    page.namespace_id = {5, 5};
    page.epoch = epoch;
    index.insert(page, {.sequence = epoch});
  }
  EXPECT_TRUE(namespaces.raise_floor({5, 5}, 3));
  EXPECT_FALSE(namespaces.raise_floor({5, 5}, 2));
  EXPECT_FALSE(index.find({1, 1}));
  EXPECT_FALSE(index.find({1, 2}));
  EXPECT_TRUE(index.find({1, 3}));
}

}  // namespace
}  // namespace peercached::disk
