// Lock-free readers while every kind of change alters the table. Run under ThreadSanitizer.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <random>
#include <thread>

#include "records.h"
#include "shard/shard.h"

namespace peercached {
namespace {

// Digest and generation determine every field, so a row mixed from two states is noticed.
bool whole(const RecordRow& row) {
  const RecordRow expected = record(row.digest, row.generation, row.flags);
  return row.offset == expected.offset && row.length == expected.length &&
         row.check == expected.check;
}

TEST(ShardConcurrency, GrowingNeverHidesOrMixesARecord) {
  ShardOf shard(200'000, {1, 2});
  const auto stable = random_records(300, 1);
  shard.apply(1, stable);

  std::atomic<bool> done{false};
  std::atomic<uint64_t> hidden{0}, mixed{0}, lookups{0};
  std::vector<std::thread> readers;
  for (uint64_t reader = 0; reader < 2; ++reader)
    readers.emplace_back([&, reader] {
      std::mt19937_64 random(reader);
      std::vector<Digest> digests(64);
      std::vector<RecordRow> rows;
      do {
        size_t next = random();
        for (auto& digest : digests) digest = stable[next++ % stable.size()].digest;
        rows.clear();
        shard.lookup(digests, rows);
        size_t at = 0;
        for (const auto& digest : digests) {
          bool found = false;
          for (; at < rows.size() && rows[at].digest == digest; ++at) {
            found |= rows[at].holder == 1;
            mixed += !whole(rows[at]);
          }
          hidden += !found;
        }
        ++lookups;
      } while (!done);
    });
  // The table grows from nothing to 50 000 records and shrinks back, twice. Meanwhile the stable
  // records change all the time.
  Generation generation = 1000;
  for (int round = 0; round < 2; ++round) {
    auto rows = random_records(50'000, 2);
    for (size_t at = 0; at < rows.size(); at += 500) {
      auto some = std::span(rows).subspan(at, 500);
      for (auto& row : some) row = record(row.digest, ++generation);
      shard.apply(2, some);
      const RecordRow again = record(stable[at / 500 % stable.size()].digest, ++generation);
      shard.apply(1, std::span(&again, 1));
      shard.apply(2, std::span(&again, 1));
    }
    shard.drop_holder(2);
    while (shard.sweep(1000) > 0) {
    }
    shard.add_holder(2);
  }
  // On a busy machine, the writer may finish before the readers had a turn.
  while (lookups < 50) std::this_thread::yield();
  done = true;
  for (auto& reader : readers) reader.join();
  EXPECT_EQ(hidden, 0u);
  EXPECT_EQ(mixed, 0u);
}

TEST(ShardConcurrency, MakingRoomAheadNeverHidesARecord) {
  std::atomic<bool> untidy{false}, done{false};
  Shard shard(1'000'000, [&] { untidy = true; });
  shard.add_holder(1);
  const auto rows = random_records(700'000, 1);
  std::atomic<size_t> there{0};
  uint64_t hidden = 0;
  std::thread sweeper([&] {
    while (!done) {
      if (!untidy.exchange(false)) std::this_thread::yield();
      while (shard.sweep(100) > 0) {
      }
    }
  });
  std::thread reader([&] {
    std::mt19937_64 random(1);
    std::vector<Digest> digests(64);
    std::vector<RecordRow> found;
    while (!done) {
      const size_t count = there;
      if (count == 0) continue;
      for (auto& digest : digests) digest = rows[random() % count].digest;
      found.clear();
      shard.lookup(digests, found);
      hidden += found.size() != digests.size();
    }
  });
  for (size_t at = 0; at < rows.size(); at += 5000) {
    shard.apply(1, std::span(rows).subspan(at, 5000));
    there = at + 5000;
  }
  done = true;
  sweeper.join();
  reader.join();
  EXPECT_EQ(hidden, 0u);
  EXPECT_EQ(shard.stats().full, 0u);
}

TEST(ShardConcurrency, ARecordBeingChangedIsNeverSeenHalf) {
  ShardOf shard(1000, {1});
  const auto hot = random_records(4, 1);
  shard.apply(1, hot);
  std::atomic<bool> done{false};
  std::thread writer([&] {
    std::vector<RecordRow> rows;
    for (Generation generation = 100; !done; ++generation) {
      rows.clear();
      for (const auto& row : hot) rows.push_back(record(row.digest, generation));
      shard.apply(1, rows);
    }
  });
  std::vector<Digest> digests;
  for (int i = 0; i < 64; ++i) digests.push_back(hot[i % hot.size()].digest);
  std::vector<RecordRow> rows;
  uint64_t mixed = 0, missing = 0;
  for (int round = 0; round < 5000; ++round) {
    rows.clear();
    shard.lookup(digests, rows);
    missing += digests.size() - rows.size();
    for (const auto& row : rows) mixed += !whole(row);
  }
  done = true;
  writer.join();
  EXPECT_EQ(mixed, 0u);
  EXPECT_EQ(missing, 0u);
}

TEST(ShardConcurrency, ReusedCellIsNeverSeenHalf) {
  ShardOf shard(1000, {1});
  // All in one piece of the table, so that each record reuses a cell that another has released.
  auto hot = random_records(3, 1);
  for (auto& row : hot) row.digest.hi &= ~uint64_t{0xff};
  std::atomic<bool> done{false};
  std::thread writer([&] {
    std::vector<RecordRow> rows;
    for (Generation generation = 1; !done;) {
      rows.clear();
      for (int turn = 0; turn < 60; ++turn) {
        const Digest& digest = hot[turn % hot.size()].digest;
        for (int again = 0; again < 2; ++again) {
          rows.push_back(record(digest, ++generation));
          rows.push_back(withdrawal(digest, generation));
        }
      }
      shard.apply(1, rows);
    }
  });
  std::vector<Digest> digests;
  for (int i = 0; i < 64; ++i) digests.push_back(hot[i % hot.size()].digest);
  std::vector<RecordRow> rows;
  uint64_t mixed = 0, seen = 0;
  for (int round = 0; round < 20'000 || (seen == 0 && round < 10'000'000); ++round) {
    rows.clear();
    shard.lookup(digests, rows);
    seen += rows.size();
    for (const auto& row : rows) mixed += !whole(row);
  }
  done = true;
  writer.join();
  EXPECT_EQ(mixed, 0u);
  EXPECT_GT(seen, 0u);
}

TEST(ShardConcurrency, APieceBeingRebuiltNeverHidesARecord) {
  ShardOf shard(4'000'000, {1, 2});
  // All in one piece of the table, which is small, then large, then small again.
  const auto in_one_piece = [](std::vector<RecordRow> rows) {
    for (auto& row : rows) row.digest.hi = (row.digest.hi & ~uint64_t{0xff}) | 0x33;
    return rows;
  };
  const auto stable = in_one_piece(random_records(64, 1));
  shard.apply(1, stable);
  std::vector<Digest> digests;
  for (const auto& row : stable) digests.push_back(row.digest);
  std::atomic<bool> done{false};
  std::atomic<uint64_t> hidden{0}, mixed{0}, lookups{0};
  std::thread reader([&] {
    std::vector<RecordRow> rows;
    while (!done) {
      rows.clear();
      shard.lookup(digests, rows);
      hidden += digests.size() - rows.size();
      for (const auto& row : rows) mixed += !whole(row);
      ++lookups;
    }
  });
  auto rows = in_one_piece(random_records(2000, 2));
  for (int round = 0; round < 60 || lookups < 200; ++round) {
    for (auto& row : rows) row.flags = kRecordResident;
    shard.apply(2, rows);
    for (auto& row : rows) row.flags = kRecordWithdraw;
    shard.apply(2, rows);
    for (auto& row : rows) row.generation += rows.size();
  }
  done = true;
  reader.join();
  EXPECT_EQ(hidden, 0u);
  EXPECT_EQ(mixed, 0u);
}

TEST(ShardConcurrency, AReusedIndexNeverShowsItsFormerHolder) {
  Shard shard(50'000);
  std::atomic<uint64_t> life{1};
  shard.add_holder(3);
  const auto rows = random_records(2000, 1);

  std::atomic<bool> done{false};
  std::atomic<uint64_t> revived{0}, mixed{0};
  // Like the real caller, apply a batch only while its incarnation owns the index. Drop and sweep
  // may still come in the middle of the batch.
  std::mutex index_mutex;
  std::atomic<bool> index_wanted{false};  // needed because mutexes are not fair
  std::thread publisher([&] {
    std::mt19937_64 random(5);
    Generation step = 0;
    while (!done) {
      if (index_wanted) {
        std::this_thread::yield();
        continue;
      }
      std::lock_guard lock(index_mutex);
      std::vector<RecordRow> batch;
      for (int i = 0; i < 200; ++i)
        batch.push_back(record(rows[random() % rows.size()].digest, life << 30 | ++step));
      shard.apply(3, batch);
    }
  });
  std::thread reader([&] {
    std::mt19937_64 random(6);
    std::vector<RecordRow> found;
    while (!done) {
      const uint64_t now = life;
      std::vector<Digest> digests;
      for (int i = 0; i < 64; ++i) digests.push_back(rows[random() % rows.size()].digest);
      found.clear();
      shard.lookup(digests, found);
      for (const auto& row : found) {
        mixed += !whole(row);
        revived += row.generation >> 30 < now;
      }
    }
  });
  for (int i = 0; i < 30; ++i) {
    while (shard.stats().entries < 500) std::this_thread::yield();
    shard.drop_holder(3);
    while (!shard.swept(3)) shard.sweep(500);
    index_wanted = true;
    std::lock_guard lock(index_mutex);
    index_wanted = false;
    ++life;
    shard.add_holder(3);
  }
  done = true;
  publisher.join();
  reader.join();
  EXPECT_EQ(mixed, 0u);
  EXPECT_EQ(revived, 0u);
}

TEST(ShardConcurrency, EverythingAtOnceLeavesTheCountsRight) {
  Shard shard(20'000);
  for (HolderIndex holder = 0; holder < 6; ++holder) shard.add_holder(holder);
  std::vector<Digest> digests;
  std::mt19937_64 seed(1);
  for (int i = 0; i < 5000; ++i) digests.push_back(random_digest(seed));

  const auto writer = [&](uint64_t id) {
    std::mt19937_64 random(id);
    Generation generation = 0;
    for (int round = 0; round < 150; ++round) {
      std::vector<RecordRow> rows;
      for (int i = 0; i < 100; ++i) {
        const uint8_t flags = random() % 3 ? kRecordResident : kRecordWithdraw;
        rows.push_back(record(digests[random() % digests.size()], ++generation, flags));
      }
      shard.apply(static_cast<HolderIndex>(random() % 6), rows);
    }
  };
  std::vector<std::thread> threads;
  for (uint64_t id = 0; id < 2; ++id) threads.emplace_back(writer, id);
  threads.emplace_back([&] {
    std::mt19937_64 random(7);
    std::vector<RecordRow> found;
    for (int round = 0; round < 400; ++round) {
      found.clear();
      shard.lookup(std::span(digests).subspan(random() % 4900, 100), found);
      for (const auto& row : found) ASSERT_TRUE(whole(row));
    }
  });
  threads.emplace_back([&] {
    std::vector<RecordRow> found;
    for (int round = 0; round < 20; ++round) {
      shard.drop_holder(static_cast<HolderIndex>(3 + round % 3));
      shard.sweep(700);
      for (HolderIndex holder = 3; holder < 6; ++holder)
        if (shard.swept(holder)) shard.add_holder(holder);
      found.clear();
      shard.lookup_all(digests, found);
      for (const auto& row : found) ASSERT_TRUE(whole(row));
      shard.stats();
    }
  });
  for (auto& thread : threads) thread.join();

  while (shard.sweep(1000) > 0) {
  }
  std::vector<RecordRow> found;
  shard.lookup_all(digests, found);
  const uint64_t records = found.size();
  EXPECT_EQ(shard.stats().entries, records);
  EXPECT_EQ(shard.stats().dead_entries, 0u);
  found.clear();
  shard.lookup(digests, found);
  EXPECT_LE(found.size(), records);
  EXPECT_GE(found.size(), records / 2) << "at worst, six hold a page and three are named";
  for (HolderIndex holder = 0; holder < 6; ++holder) shard.drop_holder(holder);
  EXPECT_EQ(shard.stats().entries, 0u);
  while (shard.sweep(1000) > 0) {
  }
  for (HolderIndex holder = 0; holder < 6; ++holder) EXPECT_TRUE(shard.swept(holder));
}

}  // namespace
}  // namespace peercached
