// A one-sided reader against a pool that constantly reuses its slots. It reads header, payload, and
// header again. Each accepted payload must be right, without the help of a checksum.
#include <array>
#include <atomic>
#include <random>
#include <thread>

#include "pool/page_fixture.h"
#include "pool/slot_header.h"

namespace peercached {
namespace {

// A network card may read memory while it is written: a data race by design, which no lock can
// prevent. So this function is hidden from ThreadSanitizer. It copies by itself, because memcpy
// would be watched. Volatile keeps the order of the loads, and so does x86.
__attribute__((no_sanitize("thread"))) void read_remotely(void* dest, const void* source,
                                                          size_t bytes) {
#ifdef __aarch64__
  asm volatile("dmb ishld" ::: "memory");
#endif
  auto* to = static_cast<uint64_t*>(dest);
  const auto* from = static_cast<const volatile uint64_t*>(source);
  for (size_t i = 0; i < bytes / sizeof(uint64_t); ++i) to[i] = from[i];
}

class RemoteReader : public PageFixture {
 protected:
  static constexpr uint64_t kNumbers = 64;
  static constexpr std::array<uint32_t, 3> kLengths{16 * kKiB, 40 * kKiB, 128 * kKiB};
  static uint32_t length_of(uint64_t version) { return kLengths[version % kLengths.size()]; }

  struct Known {
    RecordRow row;
    uint64_t version = 0;
  };

  // Sets pages of changing lengths under few numbers. Each set has different bytes.
  void churn(uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<std::byte> source(kLengths.back());
    while (!done) {
      const uint64_t number = random() % kNumbers;
      const uint64_t version = ++versions;
      const uint32_t length = length_of(version);
      std::vector<RecordRow> rows;
      remove(number, rows);
      Reservation one = reserve(number, length);
      if (one.outcome == ReserveOutcome::present) unpin(one.page);
      if (one.outcome != ReserveOutcome::reserved) continue;
      paint(source.data(), length, version);
      one.page.checksum = copy_and_checksum(one.page.payload(), source.data(), length);
      RecordRow row;
      pool->commit({&one.page, 1}, {&row, 1});
      {
        std::lock_guard lock(known_mutex);
        known[number] = {row, version};
        newest = number;
      }
      unpin(one.page);
    }
  }

  void read_until(uint64_t accepted_wanted, uint64_t wrong_wanted) {
    std::mt19937_64 random(99);
    std::vector<std::byte> payload(kLengths.back());
    const auto limit = Clock::now() + std::chrono::seconds(100);
    while ((accepted < accepted_wanted || stale < 1000 || wrong < wrong_wanted) &&
           Clock::now() < limit) {
      Known target;
      {
        std::lock_guard lock(known_mutex);
        // Half of the targets are fresh; the others are probably gone.
        target = known[random() % 2 ? newest : random() % kNumbers];
      }
      if (target.version == 0) continue;
      const RecordRow& row = target.row;
      const std::byte* slot = pool->base() + row.offset;
      SlotHeader before, after;
      read_remotely(&before, slot, sizeof before);
      read_remotely(payload.data(), slot + sizeof before, row.length);
      read_remotely(&after, slot, sizeof after);
      if (!names(before, row) || !names(after, row)) {
        ++stale;
        continue;
      }
      ++accepted;
      if (!painted(payload.data(), row.length, target.version)) ++wrong;
    }
    done = true;
  }

  static bool names(const SlotHeader& header, const RecordRow& row) {
    return sealed(header) && header.digest == row.digest && header.incarnation == kIncarnation &&
           header.generation == row.generation && header.length == row.length;
  }

  void run(uint64_t accepted_wanted, uint64_t wrong_wanted) {
    open(1 * kMiB, 0.9, 0.7);
    std::thread one([this] { churn(1); }), two([this] { churn(2); });
    read_until(accepted_wanted, wrong_wanted);
    one.join();
    two.join();
  }

  std::mutex known_mutex;
  std::array<Known, kNumbers> known;
  uint64_t newest = 0;
  std::atomic<uint64_t> versions{0};
  std::atomic<bool> done{false};
  uint64_t accepted = 0, stale = 0, wrong = 0;
};

TEST_F(RemoteReader, NeverAcceptsWrongBytesFromAReusedSlot) {
  run(5'000, 0);
  EXPECT_GE(accepted, 5'000u);
  EXPECT_GE(stale, 1000u) << "no slot was reused under the reader: nothing was tested";
  EXPECT_EQ(wrong, 0u);
}

// Proves the test above: without the invalidation, the reader accepts wrong bytes.
TEST_F(RemoteReader, WouldAcceptWrongBytesIfHeadersStayedValid) {
  skip_header_invalidation_for_test = true;
  run(1, 1);
  skip_header_invalidation_for_test = false;
  EXPECT_GE(wrong, 1u);
}

// Without threads: the old header never appears with new bytes, at any moment between two uses.
TEST_F(RemoteReader, HeaderIsInvalidBeforeThePayloadCanChange) {
  open(1 * kMiB);
  std::vector<RecordRow> live;
  for (uint64_t i = 0; i < 200; ++i) {
    const Reservation one = reserve(i, kLengths[i % 3]);
    ASSERT_EQ(one.outcome, ReserveOutcome::reserved);
    const auto begin = static_cast<uint64_t>(one.page.header - pool->base());
    for (const RecordRow& row : live) {
      const bool apart = row.offset + sizeof(SlotHeader) + row.length <= begin ||
                         begin + sizeof(SlotHeader) + one.page.length <= row.offset;
      SlotHeader header;
      std::memcpy(&header, pool->base() + row.offset, sizeof header);
      EXPECT_TRUE(apart || !names(header, row)) << "page " << i;
    }
    live.push_back(commit(one, i));
    unpin(one.page);
  }
}

}  // namespace
}  // namespace peercached
