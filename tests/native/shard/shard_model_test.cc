// The shard against a simple model of its rules, over random operations.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "records.h"
#include "shard/shard.h"

namespace peercached {
namespace {

constexpr HolderIndex kModelHolders = 7;

auto key(const RecordRow& row) {
  return std::tuple(row.holder, row.generation, row.offset, row.length, row.check, row.flags);
}

class Model {
 public:
  std::map<Digest, std::vector<RecordRow>> records;

  ShardApplied apply(HolderIndex holder, const std::vector<RecordRow>& rows) {
    ShardApplied applied;
    for (const RecordRow& row : rows) apply_one(holder, row, applied);
    return applied;
  }

  void drop(HolderIndex holder) {
    remove_if([&](const RecordRow& row) { return row.holder == holder; });
  }

  template <typename Predicate>
  size_t remove_if(Predicate predicate) {
    size_t removed = 0;
    for (auto at = records.begin(); at != records.end();) {
      removed += std::erase_if(at->second, predicate);
      at = at->second.empty() ? records.erase(at) : std::next(at);
    }
    return removed;
  }

  size_t size() const {
    size_t count = 0;
    for (const auto& [digest, rows] : records) count += rows.size();
    return count;
  }

 private:
  RecordRow* find(HolderIndex holder, const Digest& digest) {
    auto at = records.find(digest);
    if (at == records.end()) return nullptr;
    for (RecordRow& row : at->second)
      if (row.holder == holder) return &row;
    return nullptr;
  }

  void apply_one(HolderIndex holder, RecordRow row, ShardApplied& applied) {
    row.holder = holder;
    const RecordRow* own = find(holder, row.digest);
    const bool withdraw = row.flags & kRecordWithdraw;
    if (own ? (withdraw ? own->generation > row.generation : own->generation >= row.generation)
            : withdraw) {
      ++applied.old;
      return;
    }
    auto& rows = records[row.digest];
    std::erase_if(rows, [&](const RecordRow& other) { return other.holder == holder; });
    if (withdraw) {
      ++applied.withdrawn;
      if (rows.empty()) records.erase(row.digest);
      return;
    }
    rows.push_back(row);
    ++(own ? applied.changed : applied.added);
  }
};

auto counts(const ShardApplied& a) {
  return std::tuple(a.added, a.changed, a.withdrawn, a.old, a.full, a.bad);
}

class ShardModel : public ::testing::TestWithParam<uint64_t> {
 protected:
  ShardModel() : random_(GetParam()) {
    // Few low bytes, so that pieces grow. Some digests differ only in the low half, so that
    // hash buckets overflow.
    for (int i = 0; i < 3000; ++i)
      digests_.push_back({(random_() & ~uint64_t{0xff}) | random_() % 3, random_()});
    for (int i = 0; i < 60; ++i) digests_.push_back({0x77ff00ff00ff0001, random_()});
    for (HolderIndex holder = 0; holder < kModelHolders; ++holder) shard_.add_holder(holder);
  }

  RecordRow random_row() {
    const Digest& digest = digests_[random_() % digests_.size()];
    const Generation generation = 1 + generation_ + random_() % 50;
    if (random_() % 4 == 0) return withdrawal(digest, generation);
    return record(digest, generation, random_() % 3 ? kRecordResident : 0);
  }

  void check(const Digest& digest) {
    std::vector<RecordRow> found;
    shard_.lookup(std::span(&digest, 1), found);
    std::vector<RecordRow> expected;
    if (auto at = model_.records.find(digest); at != model_.records.end()) expected = at->second;
    ASSERT_LE(found.size(), std::min<size_t>(expected.size(), kHoldersPerDigestMax));
    // Until a sweep, dead holders may hide further ones.
    const size_t least = shard_.stats().dead_entries > 0 ? 1 : kHoldersPerDigestMax;
    ASSERT_GE(found.size(), std::min<size_t>(expected.size(), least));
    for (const RecordRow& row : found) {
      ASSERT_EQ(row.digest, digest);
      // Erase it, so that a row named twice fails.
      ASSERT_EQ(std::erase_if(expected, [&](const auto& e) { return key(e) == key(row); }), 1u);
    }
  }

  void step() {
    generation_ += 5;
    const auto holder = static_cast<HolderIndex>(random_() % kModelHolders);
    switch (random_() % 9) {
      default: {
        std::vector<RecordRow> rows;
        for (size_t i = random_() % 200; i > 0; --i) rows.push_back(random_row());
        ShardApplied expected;
        if (live_[holder])
          expected = model_.apply(holder, rows);
        else
          expected.bad = static_cast<uint32_t>(rows.size());
        ASSERT_EQ(counts(shard_.apply(holder, rows)), counts(expected));
        break;
      }
      case 0:
        if (random_() % 4 != 0) break;
        shard_.drop_holder(holder);
        model_.drop(holder);
        live_[holder] = false;
        break;
      case 1:
        if (live_[holder] || !shard_.swept(holder)) break;
        shard_.add_holder(holder);
        live_[holder] = true;
        break;
      case 2:
        shard_.sweep(random_() % 300);
        break;
    }
    ASSERT_EQ(shard_.stats().entries, model_.size());
    for (int i = 0; i < 30; ++i) check(digests_[random_() % digests_.size()]);
  }

  std::mt19937_64 random_;
  Shard shard_{1'000'000};
  Model model_;
  std::vector<Digest> digests_;
  std::array<bool, kModelHolders> live_{true, true, true, true, true, true, true};
  Generation generation_ = 0;
};

TEST_P(ShardModel, AgreesWithTheModelUnderRandomOperations) {
  for (int i = 0; i < 600; ++i) {
    step();
    if (HasFatalFailure()) FAIL() << "at step " << i;
  }
  for (const Digest& digest : digests_) check(digest);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ShardModel, testing::Range(uint64_t{1}, uint64_t{7}));

}  // namespace
}  // namespace peercached
