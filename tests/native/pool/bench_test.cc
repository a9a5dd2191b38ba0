// The cost of one operation, without the copy of its bytes. Prints, asserts nothing. Run with
// --gtest_also_run_disabled_tests --gtest_filter='*Bench*'.
#include <chrono>
#include <cstdio>

#include "pool/page_fixture.h"

namespace peercached {
namespace {

class DISABLED_PoolBench : public PageFixture {
 protected:
  static constexpr size_t kBatchPages = 128;

  void set_batches(uint64_t first, uint64_t batches, uint32_t length) {
    std::vector<PageRequest> requests(kBatchPages);
    std::vector<Reservation> out(kBatchPages);
    std::vector<PinnedPage> pages(kBatchPages);
    std::vector<RecordRow> rows(kBatchPages);
    for (uint64_t batch = 0; batch < batches; ++batch) {
      for (size_t i = 0; i < kBatchPages; ++i)
        requests[i] = {digest_for(first + batch * kBatchPages + i), length};
      pool->reserve(requests, nullptr, 1, out);
      for (size_t i = 0; i < kBatchPages; ++i) pages[i] = out[i].page;
      pool->commit(pages, rows);
      pool->unpin(pages);
    }
  }

  template <class Body>
  static void timed(const char* name, uint64_t pages, Body body) {
    const auto start = Clock::now();
    body();
    const auto taken = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
    std::printf("%-44s %7.0f ns/page\n", name, taken / static_cast<double>(pages));
  }
};

TEST_F(DISABLED_PoolBench, CostPerPage) {
  for (uint32_t length : {16 * kKiB, 128 * kKiB, 1 * kMiB}) {
    open(2048 * kMiB);
    const uint64_t fits = 2000 * kMiB / (length + 64);
    const uint64_t batches = fits / kBatchPages;
    std::printf("pages of %u KiB, batches of %zu, %lu pages\n", length >> 10, kBatchPages,
                static_cast<unsigned long>(fits));
    timed("reserve + commit + unpin, empty pool", batches * kBatchPages,
          [&] { set_batches(0, batches, length); });
    const uint64_t turns = std::max<uint64_t>(batches, 200);
    timed("reserve + commit + unpin, full pool", turns * kBatchPages,
          [&] { set_batches(1 << 30, turns, length); });
    std::vector<Digest> digests(kBatchPages);
    std::vector<PinnedPage> pages(kBatchPages);
    std::vector<uint8_t> present(kBatchPages);
    const uint64_t last = (1 << 30) + (turns - batches) * kBatchPages;
    const auto digests_of = [&](uint64_t batch) {
      for (size_t i = 0; i < kBatchPages; ++i)
        digests[i] = digest_for(last + batch * kBatchPages + i);
    };
    timed("pin + unpin, touching", batches * kBatchPages, [&] {
      for (uint64_t batch = 0; batch < batches; ++batch) {
        digests_of(batch);
        pool->pin(digests, nullptr, true, pages);
        pool->unpin(pages);
      }
    });
    timed("contains, touching", batches * kBatchPages, [&] {
      for (uint64_t batch = 0; batch < batches; ++batch) {
        digests_of(batch);
        pool->contains(digests, true, present);
      }
    });
    pool.reset();
    evicted.clear();
  }
}

}  // namespace
}  // namespace peercached
