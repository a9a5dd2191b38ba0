// Shared by the tests of all engines: pages with bytes that follow from their number, a pool that
// holds them, and reads of them.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/copy.h"
#include "eventually.h"
#include "pool/pool.h"
#include "transfer/verify.h"

namespace peercached::testing {

inline constexpr Incarnation kHolderIncarnation = 4711;
inline constexpr Incarnation kReaderIncarnation = 815;
inline constexpr HolderIndex kPeer = 3;

inline Digest digest_of_page(uint64_t number) {
  return {number * 0x9e3779b97f4a7c15ull, number ^ 0x5bd1e995ull};
}

// Bytes that follow from `number`. They are at most 0x7f, so never kPaint.
inline void fill_page(std::byte* to, size_t bytes, uint64_t number) {
  uint64_t state = number * 0x2545f4914f6cdd1dull + 1;
  size_t at = 0;
  while (at < bytes) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const uint64_t word = (state ^ state >> 29) & 0x7f7f7f7f7f7f7f7full;
    const size_t n = std::min(bytes - at, sizeof word);
    std::memcpy(to + at, &word, n);
    at += n;
  }
}
inline bool is_page(const std::byte* at, size_t bytes, uint64_t number) {
  std::vector<std::byte> expected(bytes);
  fill_page(expected.data(), bytes, number);
  return std::memcmp(at, expected.data(), bytes) == 0;
}
inline constexpr std::byte kPaint{0xee};
inline bool is_painted(const std::byte* at, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    if (at[i] != kPaint) return false;
  }
  return true;
}

// For events that must come: longer where tests/rdma/vm emulates each instruction.
inline int patient_ms(int ms) {
  static const char* machine = std::getenv("RDMA_VM");
  return machine != nullptr && std::strcmp(machine, "qemu") == 0 ? ms * 10 : ms;
}

inline bool eventually(const std::function<bool()>& condition) {
  return peercached::eventually(condition, patient_ms(20'000));
}

class Gate {
 public:
  WriteGate gate{&page_};
  void fence() { page_.fence.store(1); }
  bool quiet() const { return page_.writers.load() == 0; }

 private:
  WriteGatePage page_ = {};
};

class RecordingWatcher : public PeerWatcher {
 public:
  void peer_trouble(HolderIndex peer, Incarnation, const Trouble& what) override {
    std::lock_guard lock(mutex_);
    troubles_.push_back(std::to_string(peer) + ": " + what.text +
                        (what.token_unknown ? " [token unknown]" : ""));
  }
  std::vector<std::string> troubles() const {
    std::lock_guard lock(mutex_);
    return troubles_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> troubles_;
};

// A pool that sets pages and returns their records.
class PagePool {
 public:
  explicit PagePool(uint64_t bytes, Incarnation incarnation_ = kHolderIncarnation,
                    uint64_t first_bytes = UINT64_MAX)
      : incarnation(incarnation_),
        pool(pool_config(bytes, incarnation_, first_bytes), [](auto) {}) {}

  RecordRow set(uint64_t number, uint32_t length, uint32_t namespace_slot = 0) {
    const PageRequest request{digest_of_page(number), length};
    Reservation reserved;
    pool.reserve({&request, 1}, nullptr, namespace_slot, {&reserved, 1});
    EXPECT_EQ(reserved.outcome, ReserveOutcome::reserved);
    fill_page(reserved.page.payload(), length, number);
    reserved.page.checksum = checksum(reserved.page.payload(), length);
    RecordRow row;
    pool.commit({&reserved.page, 1}, {&row, 1});
    pool.unpin({&reserved.page, 1});
    return row;
  }
  // Sets `count` pages of one length, from number `first` on.
  std::vector<RecordRow> set_many(uint64_t first, size_t count, uint32_t length) {
    std::vector<RecordRow> rows;
    for (uint64_t i = 0; i < count; ++i) rows.push_back(set(first + i, length));
    return rows;
  }
  uint64_t pins() const { return pool.stats().pins; }

  const Incarnation incarnation;
  Pool pool;

 private:
  static PoolConfig pool_config(uint64_t bytes, Incarnation incarnation, uint64_t first_bytes) {
    PoolConfig config;
    config.size_bytes = bytes;
    config.first_bytes = first_bytes;
    config.incarnation = incarnation;
    return config;
  }
};

// A read's painted destination, with one op per record.
class Reading {
 public:
  explicit Reading(const std::vector<RecordRow>& rows, HolderIndex peer = kPeer,
                   Incarnation incarnation = kHolderIncarnation) {
    size_t total_bytes = 0;
    for (const RecordRow& row : rows) total_bytes += row.length;
    memory.assign(total_bytes, kPaint);
    std::byte* dest = memory.data();
    for (const RecordRow& row : rows) {
      ReadOp op;
      op.digest = row.digest;
      op.offset = row.offset;
      op.generation = row.generation;
      op.length = row.length;
      op.dest = dest;
      dest += row.length;
      ops.push_back(op);
    }
    batch = {peer, incarnation, ops};
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  void read(Transport& engine, int deadline_ms = patient_ms(10'000),
            Verify verify = Verify::checksum) {
    VerifyingSink sink(verify);
    engine.read({&batch, 1}, Deadline::after_ms(deadline_ms), gate.gate, sink);
    EXPECT_TRUE(gate.quiet());
  }
  size_t count(PageStatus status) const {
    size_t n = 0;
    for (const ReadOp& op : ops) n += op.status == status;
    return n;
  }

  std::vector<std::byte> memory;
  std::vector<ReadOp> ops;
  ReadBatch batch;
  Gate gate;
};

// Reads one page and returns its status.
inline PageStatus one_read(Transport& engine, const RecordRow& row,
                           int deadline_ms = patient_ms(10'000)) {
  Reading reading({row});
  reading.read(engine, deadline_ms);
  return reading.ops[0].status;
}

// Batches with pages of all sizes, evenly over the powers of two from 1 byte, and one page of 64
// MiB. `read(rows, first)` reads one batch, with page numbers from `first` on.
inline void read_mixes(PagePool& holder,
                       const std::function<void(const std::vector<RecordRow>&, uint64_t)>& read) {
  std::mt19937_64 random(1);
  uint64_t number = 0;
  for (int round = 0; round < 12; ++round) {
    const uint64_t first = number;
    std::vector<RecordRow> rows;
    for (size_t i = 0, n = 1 + random() % 60; i < n; ++i) {
      const uint64_t most = 1ull << random() % 20;
      rows.push_back(holder.set(number++, static_cast<uint32_t>(1 + random() % most)));
    }
    if (round == 5) rows.push_back(holder.set(number++, 64 << 20));
    read(rows, first);
  }
}

// Runs `work` five times on each of `count` threads.
inline void on_threads(int count, const std::function<void()>& work) {
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) work();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Checks that each page of a read has its own bytes.
inline void expect_pages(const Reading& reading, uint64_t first_number) {
  for (size_t i = 0; i < reading.ops.size(); ++i) {
    const ReadOp& op = reading.ops[i];
    ASSERT_EQ(op.status, PageStatus::ok) << "page " << i << " of " << op.length << " bytes";
    ASSERT_TRUE(is_page(op.dest, op.length, first_number + i)) << "page " << i;
  }
}

// Reads these pages and checks their bytes.
inline void expect_read(Transport& engine, const std::vector<RecordRow>& rows,
                        uint64_t first_number) {
  Reading reading(rows);
  reading.read(engine);
  expect_pages(reading, first_number);
}

}  // namespace peercached::testing
