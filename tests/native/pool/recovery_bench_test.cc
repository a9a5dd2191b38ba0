// Recovery speed of a pool in a file, beside the memory speed of the same run. Prints, asserts
// nothing. Run with --gtest_also_run_disabled_tests --gtest_filter='*RecoveryBench*'.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "pool/pool_file_fixture.h"

namespace peercached {
namespace {

class DISABLED_RecoveryBench : public PoolFileFixture {
 protected:
  // Bytes per second of `body(begin, end)` over the pool's memory, on all threads.
  template <class Body>
  double rate(Body body) {
    const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
    const uint64_t part = pool->size_bytes() / threads / 4096 * 4096;
    const TimePoint began = Clock::now();
    {
      std::vector<std::jthread> workers;
      for (unsigned i = 0; i < threads; ++i)
        workers.emplace_back([&, i] { body(pool->base() + i * part, part); });
    }
    const std::chrono::duration<double> taken = Clock::now() - began;
    return static_cast<double>(part * threads) / taken.count() / 1e9;
  }
};

TEST_F(DISABLED_RecoveryBench, BesideTheMemory) {
  for (const uint32_t length : {128 * kKiB, 1 * kMiB, 4 * kKiB}) {
    pool.reset();
    unlink(path.c_str());
    config.size_bytes = 1536 * kMiB;
    reopen();
    const uint64_t pages = 1400 * kMiB / (length + 4096);
    for (uint64_t i = 0; i < pages; ++i) set_page(i, length);
    std::vector<double> recovered, summed, copied;
    for (int turn = 0; turn < 5; ++turn) {
      reopen();
      const RecoveryReport& report = pool->recovery();
      ASSERT_EQ(report.pages, pages);
      recovered.push_back(static_cast<double>(report.bytes) / report.seconds / 1e9);
      summed.push_back(rate([&](const std::byte* from, uint64_t bytes) {
        for (uint64_t at = 0; at + length <= bytes; at += length) checksum(from + at, length);
      }));
      copied.push_back(rate([&](const std::byte* from, uint64_t bytes) {
        std::vector<std::byte> to(256 * kKiB);
        for (uint64_t at = 0; at + to.size() <= bytes; at += to.size())
          std::memcpy(to.data(), from + at, to.size());
      }));
    }
    for (auto* rates : {&recovered, &summed, &copied}) std::ranges::sort(*rates);
    std::printf(
        "%5u KiB, %7lu pages: recovery %.2f GB/s, checksums alone %.2f, reading by memcpy "
        "%.2f (medians of 5); %.0f ns a page\n",
        length >> 10, static_cast<unsigned long>(pages), recovered[2], summed[2], copied[2],
        length / recovered[2]);
  }
}

}  // namespace
}  // namespace peercached
