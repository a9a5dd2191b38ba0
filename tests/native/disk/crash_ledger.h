// Promises of a process that is about to die, in memory that outlives it.
//
// Each key has versions that count up. A page read after the crash must have a version that was
// put. It must not be older than the last version reported written, and its removal must not have
// been reported. A page that was reported written must be there, unless it was removed or replaced,
// or later writes may have evicted its segment.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <random>

#include "disk_fixture.h"

namespace peercached::disk {

struct CrashLedger {
  static constexpr uint64_t kKeys = 40;
  struct Key {
    std::atomic<uint32_t> put{0};         // highest version put, or about to be put
    std::atomic<uint32_t> written{0};     // highest version reported as written
    std::atomic<uint32_t> removing{0};    // versions up to this one are being removed
    std::atomic<uint32_t> removed{0};     // versions up to this one are removed for good
    std::atomic<uint64_t> written_at{0};  // bytes_put when `written` was set
  };
  std::array<Key, kKeys> keys;
  std::atomic<uint64_t> bytes_put{0};
  std::atomic<uint64_t> checks{0};

  static CrashLedger* make() {
    void* memory = ::mmap(nullptr, sizeof(CrashLedger), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? nullptr : new (memory) CrashLedger;
  }

  static uint32_t length_of(uint64_t key, uint32_t version) {
    return 200 + static_cast<uint32_t>(key * 977 + version * 131) % 12'000;
  }
};

// Puts, removes and reads until the disk fails.
inline void crash_workload(DiskTier& tier, CrashLedger& ledger, uint64_t seed, unsigned steps) {
  std::mt19937_64 random(seed);
  for (unsigned step = 0; step < steps && tier.stats().state == DiskState::on; ++step) {
    const uint64_t number = random() % CrashLedger::kKeys;
    CrashLedger::Key& key = ledger.keys[number];
    const Digest digest = digest_for(number);
    if (random() % 6 == 0) {
      const uint32_t upto = key.put;
      key.removing = upto;
      tier.remove({&digest, 1});
      if (tier.flush(Deadline::after_ms(2000)) && tier.stats().removals_waiting == 0)
        key.removed = upto;
    } else {
      const uint32_t version = key.put + 1;
      const uint32_t length = CrashLedger::length_of(number, version);
      auto payload =
          std::make_shared<std::vector<std::byte>>(payload_of(number, length, version & 0xff));
      key.put = version;
      ledger.bytes_put += length;
      tier.put(page_for(number, *payload), payload->data(),
               [payload, version, &key, &ledger](bool written) {
                 if (!written) return;
                 key.written_at = ledger.bytes_put.load();
                 key.written = version;
               });
    }
    if (random() % 3 == 0) tier.touch({&digest, 1});
    if (random() % 8 == 0) tier.flush(Deadline::after_ms(2000));
  }
}

// `retained_bytes`: this much of the latest puts must still be there. 0: nothing was promised, so a
// page in the index may turn out to be damaged.
inline void check_ledger(DiskTier& tier, CrashLedger& ledger, uint64_t retained_bytes) {
  for (uint64_t number = 0; number < CrashLedger::kKeys; ++number) {
    CrashLedger::Key& key = ledger.keys[number];
    const uint32_t put = key.put, written = key.written, removing = key.removing;
    const auto page = tier.find(digest_for(number));
    if (!page) {
      const bool recent = ledger.bytes_put - key.written_at < retained_bytes;
      EXPECT_FALSE(written > removing && recent && written == put)
          << "key " << number << " version " << written << " was written and is lost";
      continue;
    }
    std::vector<std::byte> dest(page->length);
    DiskRead one{page->digest, dest.data(), page->length, PageStatus::pending, 0};
    tier.read({&one, 1}, Deadline::after_ms(20'000), true);
    if (retained_bytes == 0 && one.status == PageStatus::absent) continue;
    ASSERT_EQ(one.status, PageStatus::ok) << "key " << number;
    uint64_t word = 0;
    std::memcpy(&word, dest.data(), sizeof word);
    const auto low = static_cast<uint32_t>(word >> 24 & 0xff);
    // The page holds the low byte of its version. The highest version put gives the rest.
    uint32_t version = (put & ~0xffu) | low;
    if (version > put) version -= 256;
    EXPECT_EQ(dest, payload_of(number, CrashLedger::length_of(number, version), version & 0xff))
        << "wrong bytes: key " << number;
    EXPECT_GE(version, written) << "an older version of key " << number;
    EXPECT_GT(version, key.removed) << "a removed version of key " << number;
    ++ledger.checks;
  }
}

}  // namespace peercached::disk
