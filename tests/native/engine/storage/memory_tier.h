// A disk tier in memory. The test decides when it writes, and which pages it loses.
#pragma once

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "common/copy.h"
#include "disk/disk_tier.h"

namespace peercached {

class MemoryTier final : public DiskTier {
 public:
  // `automatic`: a thread writes queued pages as soon as it can.
  explicit MemoryTier(DiskEvicted lost, bool automatic = true) : lost_(std::move(lost)) {
    if (automatic) writer_ = std::thread([this] { write_until_stopped(); });
  }
  ~MemoryTier() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    if (writer_.joinable()) writer_.join();
    write_all();
  }

  PutOutcome put(const DiskPage& page, const std::byte* payload,
                 std::function<void(bool)> done) override {
    {
      std::lock_guard lock(mutex_);
      const auto here = pages_.find(page.digest);
      if (here != pages_.end()) {
        const DiskPage& old = here->second.page;
        if (old.length == page.length && old.checksum == page.checksum) return PutOutcome::present;
        pages_.erase(here);
      }
      if (queue_.size() >= queue_max) return PutOutcome::skipped_full;
      queue_.push_back({page, payload, std::move(done), false});
    }
    wake_.notify_all();
    return PutOutcome::queued;
  }
  std::optional<DiskPage> find(const Digest& digest) const override {
    std::lock_guard lock(mutex_);
    const auto here = pages_.find(digest);
    if (here == pages_.end()) return std::nullopt;
    return here->second.page;
  }
  void read(std::span<DiskRead> batch, Deadline deadline, bool, bool) override {
    if (before_read) before_read();
    for (DiskRead& one : batch) {
      std::unique_lock lock(mutex_);
      if (!wake_.wait_until(lock, deadline.at, [&] { return !hangs; })) {
        one.status = PageStatus::deadline;
        continue;
      }
      const auto here = pages_.find(one.digest);
      if (here == pages_.end() || here->second.page.length != one.length) {
        one.status = PageStatus::absent;
        continue;
      }
      ++reads;
      std::memcpy(one.dest, here->second.bytes.data(), one.length);
      read_into = one.dest;
      one.checksum = checksum(one.dest, one.length);
      one.status = PageStatus::ok;
    }
  }
  void touch(std::span<const Digest>) override {}
  void set_uses(const Digest& digest, uint8_t uses) override {
    std::lock_guard lock(mutex_);
    if (const auto here = pages_.find(digest); here != pages_.end()) here->second.page.uses = uses;
  }
  std::vector<DiskPage> leaving(uint8_t) override { return {}; }
  std::vector<DiskPage> used(uint8_t uses_min) override {
    std::lock_guard lock(mutex_);
    std::vector<DiskPage> used;
    for (const auto& [digest, stored] : pages_)
      if (stored.page.uses >= uses_min) used.push_back(stored.page);
    return used;
  }
  std::map<Digest, uint64_t> floors() const override { return {}; }
  void remove(std::span<const Digest> digests) override {
    std::lock_guard lock(mutex_);
    for (const Digest& digest : digests) {
      pages_.erase(digest);
      for (Queued& one : queue_) one.removed = one.removed || one.page.digest == digest;
      if (writing_ && *writing_ == digest) writing_removed_ = true;
    }
  }
  void drop_namespace(const Digest& id, uint64_t below_epoch) override {
    std::lock_guard lock(mutex_);
    std::erase_if(pages_, [&](const auto& entry) {
      return entry.second.page.namespace_id == id && entry.second.page.epoch < below_epoch;
    });
  }
  void note_removals(const TierNote&) override {}
  void set_quota(const Digest&, uint64_t) override {}
  DiskNamespaceUse use_of(const Digest&) const override { return {}; }
  bool scan(uint64_t&, std::vector<DiskPage>& pages) const override {
    if (const auto first = std::exchange(before_scan, nullptr)) first();
    std::lock_guard lock(mutex_);
    for (const auto& [digest, stored] : pages_) pages.push_back(stored.page);
    return false;
  }
  bool flush(Deadline) override {
    write_all();
    return true;
  }
  DiskStats stats() const override {
    std::lock_guard lock(mutex_);
    DiskStats stats;
    stats.pages = pages_.size();
    stats.queued_pages = queue_.size();
    if (hangs) stats.state = DiskState::stalled;
    return stats;
  }

  // --- controls for tests
  void write_all() {
    while (write_one()) {
    }
  }
  bool write_one() {
    Queued one;
    std::vector<std::byte> bytes;
    {
      std::lock_guard lock(mutex_);
      if (queue_.empty()) return false;
      one = std::move(queue_.front());
      queue_.pop_front();
      writing_ = one.page.digest;
      writing_removed_ = one.removed;
    }
    bytes.assign(one.payload, one.payload + one.page.length);
    {
      std::lock_guard lock(mutex_);
      if (!writing_removed_) pages_[one.page.digest] = {one.page, std::move(bytes)};
      writing_.reset();
    }
    one.done(true);
    return true;
  }
  void lose(const Digest& digest) {
    DiskPage page;
    {
      std::lock_guard lock(mutex_);
      const auto here = pages_.find(digest);
      if (here == pages_.end()) return;
      page = here->second.page;
      pages_.erase(here);
    }
    lost_({&page, 1});
  }
  void hang(bool on) {
    {
      std::lock_guard lock(mutex_);
      hangs = on;
    }
    wake_.notify_all();
  }

  std::function<void()> before_read;
  mutable std::function<void()> before_scan;  // once
  const std::byte* read_into = nullptr;       // destination of the last page read
  size_t queue_max = 1'000'000;
  bool hangs = false;
  std::atomic<uint64_t> reads{0};

 private:
  struct Stored {
    DiskPage page;
    std::vector<std::byte> bytes;
  };
  struct Queued {
    DiskPage page;
    const std::byte* payload = nullptr;
    std::function<void(bool)> done;
    bool removed = false;
  };
  void write_until_stopped() {
    while (true) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
        if (stopping_) return;
      }
      write_one();
    }
  }

  const DiskEvicted lost_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<Digest, Stored> pages_;
  std::deque<Queued> queue_;
  std::optional<Digest> writing_;
  bool writing_removed_ = false;
  bool stopping_ = false;
  std::thread writer_;
};

}  // namespace peercached
