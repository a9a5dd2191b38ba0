// Prints the shard's speed and memory. Not run by default:
//   shard_test --gtest_also_run_disabled_tests --gtest_filter='*Bench*'
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>

#include "directory/ring.h"
#include "records.h"
#include "shard/shard.h"

namespace peercached {
namespace {

double now_ms() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t size_pages = 0, resident_pages = 0;
  statm >> size_pages >> resident_pages;
  return resident_pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

void apply_in_batches(Shard& shard, HolderIndex holder, const std::vector<RecordRow>& rows,
                      size_t batch) {
  const std::span<const RecordRow> all(rows);
  for (size_t at = 0; at < all.size(); at += batch)
    shard.apply(holder, all.subspan(at, std::min(batch, all.size() - at)));
}

void print_lookups(const Shard& shard, const std::vector<RecordRow>& rows, uint64_t seed,
                   const char* what) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<Digest>> batches(4000);
  for (auto& batch : batches)
    for (int i = 0; i < 128; ++i) batch.push_back(rows[random() % rows.size()].digest);
  std::vector<RecordRow> found;
  double best_ns = 1e9;
  for (int round = 0; round < 3; ++round) {
    const double begin = now_ms();
    for (const auto& batch : batches) {
      found.clear();
      shard.lookup(batch, found);
    }
    best_ns = std::min(best_ns, (now_ms() - begin) * 1e6 / (128.0 * batches.size()));
  }
  std::printf("  lookup, %s, batches of 128: %.0f ns per digest\n", what, best_ns);
}

TEST(ShardBench, DISABLED_Figures) {
  constexpr size_t kMillion = 1'000'000;
  for (size_t batch : {kMillion, size_t{4096}, size_t{128}}) {
    Shard shard(10 * kMillion);
    shard.add_holder(1);
    const auto rows = random_records(kMillion, 1);
    const double begin = now_ms();
    apply_in_batches(shard, 1, rows, batch);
    std::printf("insert of 1 M records in batches of %zu: %.1f ms\n", batch, now_ms() - begin);
    print_lookups(shard, rows, 2, "1 M records");
    const double again = now_ms();
    apply_in_batches(shard, 1, rows, batch);
    std::printf("  the same again (all old): %.1f ms\n", now_ms() - again);
    const double drop = now_ms();
    shard.drop_holder(1);
    const double dropped = now_ms();
    while (shard.sweep(10'000) > 0) {
    }
    std::printf("  drop of a holder with 1 M records: %.6f ms; sweep: %.1f ms\n", dropped - drop,
                now_ms() - dropped);
  }

  const auto rows = random_records(10 * kMillion, 3);
  const uint64_t before = resident_bytes();
  Shard shard(10 * kMillion);
  shard.add_holder(1);
  const std::span<const RecordRow> all(rows);
  size_t done = 0;
  double worst_ms = 0;
  for (size_t upto : {100'000u, 150'000u, 200'000u, 300'000u, 400'000u, 600'000u, 800'000u,
                      1'000'000u, 1'250'000u, 1'500'000u, 2'000'000u, 3'000'000u, 4'000'000u,
                      5'000'000u, 7'000'000u, 10'000'000u}) {
    const double begin = now_ms();
    const size_t first = done;
    while (done < upto) {
      const size_t batch = std::min<size_t>(128, upto - done);
      const double batch_begin = now_ms();
      shard.apply(1, all.subspan(done, batch));
      worst_ms = std::max(worst_ms, now_ms() - batch_begin);
      done += batch;
    }
    const double ns = (now_ms() - begin) * 1e6 / static_cast<double>(upto - first);
    const auto stats = shard.stats();
    std::printf("%8zu records: %.1f bytes each (counted), %.1f (RSS), insert %.0f ns\n", upto,
                static_cast<double>(stats.bytes) / static_cast<double>(stats.entries),
                static_cast<double>(resident_bytes() - before) / static_cast<double>(upto), ns);
  }
  std::printf("  10 M records: %.1f MB RSS; slowest batch of 128 %.3f ms\n",
              static_cast<double>(resident_bytes() - before) / 1e6, worst_ms);
  print_lookups(shard, rows, 4, "10 M records");
  const auto absent = random_records(kMillion, 5);
  print_lookups(shard, absent, 6, "10 M records, all absent");

  std::vector<uint64_t> positions;
  std::vector<HolderIndex> nodes;
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000 * 160; ++i) positions.push_back(random());
  std::sort(positions.begin(), positions.end());
  for (int i = 0; i < 2000 * 160; ++i) nodes.push_back(static_cast<HolderIndex>(random() % 2000));
  double begin = now_ms();
  const Ring ring(positions, nodes, 2);
  std::printf("ring of 2000 nodes: built in %.1f ms\n", now_ms() - begin);
  HolderIndex owners[kOwnersMax];
  uint64_t sum = 0;
  begin = now_ms();
  for (size_t i = 0; i < kMillion; ++i) {
    ring.owners(rows[i].digest, owners);
    sum += owners[0];
  }
  std::printf("  owners: %.1f ns (%lu)\n", now_ms() - begin, static_cast<unsigned long>(sum % 10));
}

}  // namespace
}  // namespace peercached
