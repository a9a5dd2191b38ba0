// A pool and helpers to fill it, for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "common/copy.h"
#include "pool/pool.h"

namespace peercached {

inline constexpr uint64_t kMiB = 1 << 20;
inline constexpr uint64_t kKiB = 1 << 10;
inline constexpr Incarnation kIncarnation = 77;

inline Digest digest_for(uint64_t number) {
  uint64_t mixed = (number + 1) * 0x9e3779b97f4a7c15ULL;
  mixed ^= mixed >> 29;
  return {mixed * 0xbf58476d1ce4e5b9ULL, mixed};
}

// A page's bytes follow from its number. No two pages share an 8-byte word.
inline void paint(std::byte* payload, uint32_t length, uint64_t number) {
  uint64_t word = number << 32;
  for (uint32_t at = 0; at < length; at += 8, ++word)
    std::memcpy(payload + at, &word, std::min<uint32_t>(8, length - at));
}

inline bool painted(const std::byte* payload, uint32_t length, uint64_t number) {
  uint64_t word = number << 32;
  for (uint32_t at = 0; at < length; at += 8, ++word)
    if (std::memcmp(payload + at, &word, std::min<uint32_t>(8, length - at)) != 0) return false;
  return true;
}

class PageFixture : public ::testing::Test {
 protected:
  void open(uint64_t size_bytes, double high_watermark = 2, double low_watermark = 2) {
    PoolConfig config;
    config.size_bytes = size_bytes;
    config.first_bytes = first_bytes;
    config.incarnation = kIncarnation;
    // The defaults are above 1, so nothing is evicted in the background and tests can count.
    config.high_watermark = high_watermark;
    config.low_watermark = low_watermark;
    pool = std::make_unique<Pool>(config, [this](std::span<const RecordRow> rows) {
      std::lock_guard lock(evicted_mutex);
      evicted.insert(evicted.end(), rows.begin(), rows.end());
    });
  }

  uint64_t first_bytes = UINT64_MAX;
  uint32_t namespace_slot = 1;  // of pages set from now on

  Reservation reserve(uint64_t number, uint32_t length, const Digest* parent = nullptr) {
    const PageRequest request{digest_for(number), length};
    Reservation reservation;
    pool->reserve({&request, 1}, parent, namespace_slot, {&reservation, 1});
    return reservation;
  }

  RecordRow commit(const Reservation& reservation, uint64_t number) {
    PinnedPage page = reservation.page;
    paint(page.payload(), page.length, number);
    page.checksum = checksum(page.payload(), page.length);
    RecordRow row;
    pool->commit({&page, 1}, {&row, 1});
    return row;
  }

  // Reserve, fill, commit, unpin. Fails the test if the pool refuses the page.
  RecordRow set(uint64_t number, uint32_t length, const Digest* parent = nullptr) {
    const Reservation reservation = reserve(number, length, parent);
    EXPECT_EQ(reservation.outcome, ReserveOutcome::reserved) << "page " << number;
    if (reservation.outcome != ReserveOutcome::reserved) return {};
    const RecordRow row = commit(reservation, number);
    pool->unpin({&reservation.page, 1});
    return row;
  }

  // The same without writing the bytes, for tests of placement only.
  RecordRow set_unpainted(uint64_t number, uint32_t length) {
    const Reservation reservation = reserve(number, length);
    EXPECT_EQ(reservation.outcome, ReserveOutcome::reserved) << "page " << number;
    if (reservation.outcome != ReserveOutcome::reserved) return {};
    RecordRow row;
    pool->commit({&reservation.page, 1}, {&row, 1});
    unpin(reservation.page);
    return row;
  }

  // Sets the pages in one batch, as a chain.
  void set_batch(const std::vector<uint64_t>& numbers, uint32_t length,
                 const Digest* parent = nullptr) {
    std::vector<PageRequest> requests;
    for (uint64_t number : numbers) requests.push_back({digest_for(number), length});
    std::vector<Reservation> out(numbers.size());
    pool->reserve(requests, parent, namespace_slot, out);
    std::vector<PinnedPage> pages, all;
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_TRUE(out[i].page) << "page " << numbers[i];
      all.push_back(out[i].page);
      if (out[i].outcome != ReserveOutcome::reserved) continue;
      paint(out[i].page.payload(), length, numbers[i]);
      pages.push_back(out[i].page);
      pages.back().checksum = checksum(out[i].page.payload(), length);
    }
    std::vector<RecordRow> rows(pages.size());
    pool->commit(pages, rows);
    pool->unpin(all);
  }

  PinnedPage pin(uint64_t number) {
    const Digest digest = digest_for(number);
    PinnedPage page;
    pool->pin({&digest, 1}, nullptr, false, {&page, 1});
    return page;
  }
  void unpin(const PinnedPage& page) { pool->unpin({&page, 1}); }

  bool held(uint64_t number) {
    const Digest digest = digest_for(number);
    uint8_t present = 0;
    pool->contains({&digest, 1}, false, {&present, 1});
    return present != 0;
  }
  void touch(const std::vector<uint64_t>& numbers) {
    std::vector<Digest> digests;
    for (uint64_t number : numbers) digests.push_back(digest_for(number));
    std::vector<uint8_t> present(digests.size());
    pool->contains(digests, true, present);
  }
  size_t remove(uint64_t number, std::vector<RecordRow>& rows) {
    const Digest digest = digest_for(number);
    return pool->remove({&digest, 1}, rows);
  }

  std::map<Digest, RecordRow> scanned() {
    std::map<Digest, RecordRow> found;
    std::vector<RecordRow> rows;
    uint32_t slot = 0;
    while (pool->scan(slot, rows)) {
    }
    for (const RecordRow& row : rows) EXPECT_TRUE(found.emplace(row.digest, row).second);
    return found;
  }
  std::vector<RecordRow> evicted_rows() {
    std::lock_guard lock(evicted_mutex);
    return evicted;
  }
  double used() {
    const PoolStats stats = pool->stats();
    return static_cast<double>(stats.used_bytes) / static_cast<double>(stats.capacity_bytes);
  }

  std::mutex evicted_mutex;
  std::vector<RecordRow> evicted;
  std::unique_ptr<Pool> pool;  // last: its thread may call the sink until its destructor ends
};

}  // namespace peercached
