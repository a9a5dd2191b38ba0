// kill -9 at any moment, thousands of times. Committed pages are there, removed pages are not, and
// no page has a wrong byte. For a long run, set PEERCACHED_CRASHES=5000.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include "pool/pool_file_fixture.h"

namespace peercached {
namespace {

constexpr uint64_t kNumbersPerThread = 48;
constexpr unsigned kThreads = 2;
constexpr uint64_t kNumbers = kThreads * kNumbersPerThread;

// The child's promises, in memory that outlives it.
struct Promises {
  std::atomic<uint32_t> ready;
  std::atomic<uint64_t> operations;
  struct Key {
    std::atomic<uint32_t> wanted;     // version of the last set, even if unfinished
    std::atomic<uint32_t> committed;  // 0: removed, or never set
    std::atomic<uint32_t> in_doubt;   // an operation is in progress
  } keys[kNumbers];
};

// The content contains the version. Number and version determine the length.
uint64_t content_of(uint64_t number, uint32_t version) { return number | uint64_t{version} << 8; }
uint32_t length_of(uint64_t number, uint32_t version) {
  constexpr uint32_t kLengths[] = {4096, 5000, 16 * kKiB, 40 * kKiB, 100 * kKiB};
  return kLengths[(number * 7 + version) % 5];
}

class PoolCrash : public PoolFileFixture {
 protected:
  void SetUp() override {
    PoolFileFixture::SetUp();
    void* shared =
        mmap(nullptr, sizeof(Promises), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    promises = new (shared) Promises{};
  }
  void TearDown() override {
    PoolFileFixture::TearDown();
    munmap(promises, sizeof(Promises));
  }

  void set_version(uint64_t number, uint32_t version) {
    const PageRequest request{digest_for(number), length_of(number, version)};
    Reservation one;
    pool->reserve({&request, 1}, nullptr, {100, kNamespace, 0}, {&one, 1});
    if (one.outcome != ReserveOutcome::reserved) return pool->unpin({&one.page, 1});
    paint(one.page.payload(), one.page.length, content_of(number, version));
    one.page.checksum = checksum(one.page.payload(), one.page.length);
    RecordRow row;
    pool->commit({&one.page, 1}, {&row, 1});
    pool->unpin({&one.page, 1});
  }

  void hammer(unsigned thread, uint64_t seed) {
    std::mt19937_64 random(seed);
    for (;;) {
      const uint64_t number = thread * kNumbersPerThread + random() % kNumbersPerThread;
      Promises::Key& key = promises->keys[number];
      key.in_doubt = 1;
      if (key.committed != 0) {
        std::vector<RecordRow> rows;
        remove(number, rows);
        key.committed = 0;
      } else {
        const uint32_t version = ++key.wanted;
        set_version(number, version);
        if (held(number)) key.committed = version;
      }
      key.in_doubt = 0;
      ++promises->operations;
    }
  }

  [[noreturn]] void live(uint64_t seed) {
    reopen();
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < kThreads; ++i)
      threads.emplace_back([=, this] { hammer(i, seed + i); });
    promises->ready = 1;
    hammer(0, seed);
    std::abort();
  }

  // `full`: pages may also have been evicted.
  void check(bool full) {
    reopen();
    const RecoveryReport& report = pool->recovery();
    ASSERT_EQ(report.why_fresh, "");
    ASSERT_EQ(report.damaged_spans, 0u);
    ASSERT_EQ(report.damaged_headers, 0u);
    ASSERT_EQ(report.damaged_payloads, 0u);
    ASSERT_EQ(report.duplicates, 0u);
    ASSERT_LE(report.unfinished, kThreads);
    recovered += report.pages;
    for (uint64_t number = 0; number < kNumbers; ++number) {
      Promises::Key& key = promises->keys[number];
      const PinnedPage page = pin(number);
      if (!page) {
        if (!full && key.in_doubt == 0) {
          ASSERT_EQ(key.committed, 0u) << "a committed page is lost: " << number;
        }
      } else {
        uint64_t first = 0;
        std::memcpy(&first, page.payload(), sizeof first);
        const uint32_t version = static_cast<uint32_t>(first >> 40);
        ASSERT_TRUE(painted(page.payload(), page.length, content_of(number, version)));
        ASSERT_EQ(page.length, length_of(number, version));
        if (key.in_doubt == 0) {
          ASSERT_EQ(version, key.committed) << "a removed page is back: " << number;
        } else {
          ASSERT_TRUE(version == key.wanted || version == key.committed) << number;
        }
        key.wanted = version;
        unpin(page);
      }
      key.committed = page ? key.wanted.load() : 0;
      key.in_doubt = 0;
    }
  }

  void crash(bool full) {
    const char* wanted = std::getenv("PEERCACHED_CRASHES");
    const int crashes = wanted == nullptr ? 60 : std::atoi(wanted);
    std::mt19937_64 random(crashes);
    for (int i = 0; i < crashes; ++i) {
      promises->ready = 0;
      pool.reset();
      const pid_t child = fork();
      if (child == 0) live(random());
      while (promises->ready == 0) std::this_thread::yield();
      // Some children die at once, most of them under full load.
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
      kill(child, SIGKILL);
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the child failed";
      check(full);
      if (HasFatalFailure()) return;
      ++config.incarnation;
    }
    std::printf("%d crashes, %lu operations, %lu pages recovered\n", crashes,
                static_cast<unsigned long>(promises->operations.load()),
                static_cast<unsigned long>(recovered));
    EXPECT_GT(recovered, 0u);
  }

  Promises* promises = nullptr;
  uint64_t recovered = 0;
};

TEST_F(PoolCrash, KeepsCommittedAndLosesRemovedPages) {
  config.size_bytes = 16 * kMiB;
  crash(false);
}

TEST_F(PoolCrash, RecoversWhileEvictionMovesMemoryBetweenSizes) {
  config.size_bytes = 1 * kMiB + 512 * kKiB;
  crash(true);
}

// Recovery itself may be killed. That loses at most the page that it is moving.
TEST_F(PoolCrash, DuringRecovery) {
  config.size_bytes = 16 * kMiB;
  reopen();
  for (uint64_t i = 0; i < 400; ++i) set_page(i, 4096 * (1 + i % 9));
  std::mt19937_64 random(7);
  int killed = 0;
  for (int i = 0; i < 40; ++i) {
    pool.reset();
    ++config.incarnation;
    promises->ready = 0;
    const pid_t child = fork();
    if (child == 0) {
      promises->ready = 1;
      for (;;) reopen();
    }
    while (promises->ready == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 6000));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    killed += WIFSIGNALED(status);
    reopen();
    const RecoveryReport& report = pool->recovery();
    ASSERT_EQ(report.why_fresh, "");
    for (uint64_t number = 0; number < 400; ++number) right(number);
  }
  EXPECT_EQ(killed, 40);
  EXPECT_GE(pool->recovery().pages, 400u - 40u);
}

}  // namespace
}  // namespace peercached
