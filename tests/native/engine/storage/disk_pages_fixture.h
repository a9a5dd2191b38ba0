// A pool over a disk tier in memory, and the directory shard that receives their records.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <random>
#include <stdexcept>

#include "common/copy.h"
#include "engine/storage/disk_pages.h"
#include "engine/storage/memory_tier.h"
#include "engine/storage/promoter.h"
#include "shard/shard.h"

namespace peercached {

inline constexpr uint32_t kDiskPageBytes = 16 << 10;

class DiskPagesFixture : public ::testing::Test {
 protected:
  explicit DiskPagesFixture(const JournalConfig& journal = {}) : journal_(journal) {}

  void open(uint64_t pool_bytes, bool automatic = true) {
    shard_.add_holder(kSelfHolder);
    PoolConfig config;
    config.size_bytes = pool_bytes;
    config.incarnation = 7;
    pool_ = std::make_unique<Pool>(config,
                                   [this](std::span<const RecordRow> r) { disk_->left_pool(r); });
    disk_ = std::make_unique<DiskPages>(*pool_, namespaces_, journal_,
                                        [this](std::span<const RecordRow> r) { tell(r); });
    auto tier = std::make_unique<MemoryTier>(
        [this](std::span<const DiskPage> pages) { disk_->left_disk(pages); }, automatic);
    tier_ = tier.get();
    disk_->start(std::move(tier));
    promoter_ = std::make_unique<Promoter>(*pool_, namespaces_, *disk_);
    ns_ = namespaces_.open("ns", 0).get();
  }
  void TearDown() override {
    promoter_.reset();
    disk_->end();
    pool_.reset();
    disk_.reset();
  }

  static Digest digest_of_page(uint64_t number) {
    return {number * 0x9e3779b97f4a7c15 + 1, number ^ 0x5555};
  }
  static Born born_of(const Digest& digest) {
    return static_cast<Born>((digest.lo ^ 0x5555) + 1) & kBornMax;
  }
  static std::vector<std::byte> content_of(const Digest& digest) {
    std::vector<std::byte> bytes(kDiskPageBytes);
    std::mt19937_64 random(digest.hi ^ digest.lo);
    for (size_t at = 0; at < bytes.size(); at += 8) {
      const uint64_t word = random();
      std::memcpy(bytes.data() + at, &word, 8);
    }
    return bytes;
  }

  void tell(std::span<const RecordRow> rows) {
    std::lock_guard lock(told_mutex_);
    told_.insert(told_.end(), rows.begin(), rows.end());
    shard_.apply(kSelfHolder, rows);
  }

  // Sets the page, at most kDiskPageBytes, like a worker; false if there was no room.
  bool set(const Digest& digest, uint32_t bytes = kDiskPageBytes) {
    const PageRequest request{digest, bytes};
    Reservation reservation;
    pool_->reserve({&request, 1}, nullptr, ns_->current().pool_slot, {&reservation, 1});
    if (reservation.outcome != ReserveOutcome::reserved &&
        reservation.outcome != ReserveOutcome::present) {
      return false;
    }
    PinnedPage page = reservation.page;
    if (reservation.outcome == ReserveOutcome::reserved) {
      page.checksum = copy_and_checksum(page.payload(), content_of(digest).data(), bytes);
      page.born = born_of(digest);
      RecordRow row;
      pool_->commit({&page, 1}, {&row, 1});
      tell({&row, 1});
    }
    std::vector<RecordRow> withdrawals;
    pool_->withdrawals_of({&page, 1}, withdrawals);
    disk_->left_pool(withdrawals);
    write_behind(page);
    return true;
  }
  void write_behind(PinnedPage page) {
    HeldSlots held(*pool_);
    held.take(page);
    disk_->write_behind(ns_->id(), ns_->current().epoch, std::move(held));
  }
  // Sets page 1, so that it waits for its write to disk.
  Digest set_one() {
    const Digest digest = digest_of_page(1);
    EXPECT_TRUE(set(digest));
    return digest;
  }
  void remove(const Digest& digest) {
    std::vector<RecordRow> rows;
    const Removed removed{digest, 1};
    disk_->remove({&removed, 1}, rows);
    tell(rows);
  }
  bool in_pool(const Digest& digest) {
    uint8_t here = 0;
    pool_->contains({&digest, 1}, false, {&here, 1});
    return here != 0;
  }
  // Takes the page out of the pool, like eviction.
  void evict(const Digest& digest) {
    std::vector<RecordRow> rows;
    pool_->remove({&digest, 1}, rows);
    disk_->left_pool(rows);
  }
  // The owner's record of the page: none ('-'), resident ('r') or not ('n').
  char record(const Digest& digest) {
    std::vector<RecordRow> rows;
    shard_.lookup({&digest, 1}, rows);
    return rows.empty() ? '-' : rows[0].flags & kRecordResident ? 'r' : 'n';
  }
  PromoteStatus promote(const Digest& digest, int64_t ms = 10'000) {
    const Promotions some =
        promoter_->promote({&digest, 1}, Urgency::somebody_waits, Deadline::after_ms(ms));
    if (some.pages[0]) {
      const auto bytes = content_of(digest);
      EXPECT_EQ(std::memcmp(some.pages[0].payload(), bytes.data(), bytes.size()), 0);
    }
    return some.statuses[0];
  }

  NamespaceTable namespaces_{Key128{}};
  Namespace* ns_ = nullptr;
  Shard shard_{100'000};
  std::mutex told_mutex_;
  std::vector<RecordRow> told_;
  std::unique_ptr<Pool> pool_;
  Journal journal_;
  std::unique_ptr<DiskPages> disk_;
  std::unique_ptr<Promoter> promoter_;
  MemoryTier* tier_ = nullptr;
};

// The configuration of a journal in a folder of its own. Derive from it before DiskPagesFixture.
class JournalOnDisk {
 protected:
  JournalOnDisk() {
    std::string name = (std::filesystem::temp_directory_path() / "peercached-cold-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
    folder_ = name;
    config_.path = folder_ / "removals.log";
  }
  ~JournalOnDisk() { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
  JournalConfig config_;
};

}  // namespace peercached
