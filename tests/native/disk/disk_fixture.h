// A disk tier in its own directory, and helpers to fill it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "common/copy.h"
#include "disk/segment_store.h"
#include "eventually.h"

namespace peercached::disk {

inline constexpr uint64_t kKiB = 1 << 10, kMiB = 1 << 20;

inline Digest digest_for(uint64_t number) {
  uint64_t mixed = (number + 1) * 0x9e3779b97f4a7c15ULL;
  mixed ^= mixed >> 29;
  return {mixed * 0xbf58476d1ce4e5b9ULL, mixed};
}

inline Digest namespace_for(uint64_t number) { return {0xfeed, number}; }

// A page's bytes follow from its number and version. No two pages share an 8-byte word.
inline std::vector<std::byte> payload_of(uint64_t number, uint32_t length, uint32_t version = 0) {
  std::vector<std::byte> payload(length);
  uint64_t word = number << 32 | uint64_t{version} << 24;
  for (uint32_t at = 0; at < length; at += 8, ++word)
    std::memcpy(payload.data() + at, &word, std::min<uint32_t>(8, length - at));
  return payload;
}

// A directory on the file system of $TMPDIR or /tmp, deleted afterwards.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "peercached-disk-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
    path_ = name;
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline DiskPage page_for(uint64_t number, std::span<const std::byte> payload, uint64_t ns = 1,
                         uint64_t epoch = 1) {
  DiskPage page;
  page.digest = digest_for(number);
  page.namespace_id = namespace_for(ns);
  page.epoch = epoch;
  page.checksum = checksum(payload.data(), payload.size());
  page.length = static_cast<uint32_t>(payload.size());
  page.born = static_cast<Born>(number + 1);
  return page;
}

class DiskFixture : public ::testing::Test {
 protected:
  DiskFixture() {
    config.path = folder.path() + "/tier";
    config.size_bytes = 16 * kMiB;
    config.segment_bytes = kMiB;
    times.stall_ms = 60'000;  // do not take a busy machine for a stalled disk
  }

  void open(Io& io = posix_io()) {
    tier = open_segment_store(
        config,
        [this](std::span<const DiskPage> pages) {
          std::lock_guard lock(mutex);
          for (const DiskPage& page : pages) evicted.push_back(page.digest);
        },
        io, times);
  }
  void close() { tier.reset(); }
  void reopen() {
    close();
    open();
  }

  // Queues the page; result() later tells whether it was written.
  PutOutcome put(uint64_t number, uint32_t length, uint32_t version = 0, uint64_t ns = 1,
                 uint64_t epoch = 1) {
    auto payload = std::make_shared<std::vector<std::byte>>(payload_of(number, length, version));
    const std::byte* bytes = payload->data();
    return tier->put(page_for(number, *payload, ns, epoch), bytes,
                     [this, number, payload](bool written) {
                       std::memset(payload->data(), 0xee, payload->size());
                       std::lock_guard lock(mutex);
                       results[number] = written;
                     });
  }
  // Queues the page and waits for its write.
  void store(uint64_t number, uint32_t length, uint32_t version = 0, uint64_t ns = 1,
             uint64_t epoch = 1) {
    ASSERT_EQ(put(number, length, version, ns, epoch), PutOutcome::queued) << number;
    flush();
    ASSERT_TRUE(result(number)) << number;
  }
  void flush() { ASSERT_TRUE(tier->flush(Deadline::after_ms(20'000))); }
  bool result(uint64_t number) {
    std::lock_guard lock(mutex);
    return results.contains(number) && results[number];
  }

  bool holds(uint64_t number) {
    const auto page = tier->find(digest_for(number));
    if (page) {
      EXPECT_EQ(page->born, number + 1);
    }
    return page.has_value();
  }
  // ok: the bytes are right, too.
  PageStatus read(uint64_t number, uint32_t length, uint32_t version = 0) {
    std::vector<std::byte> dest(length);
    DiskRead one{digest_for(number), dest.data(), length, PageStatus::pending, 0};
    tier->read({&one, 1}, Deadline::after_ms(20'000), true);
    if (one.status == PageStatus::ok) {
      const auto wanted = payload_of(number, length, version);
      EXPECT_EQ(std::memcmp(dest.data(), wanted.data(), length), 0) << "wrong bytes: " << number;
      EXPECT_EQ(one.checksum, checksum(wanted.data(), length));
    }
    return one.status;
  }
  void remove(uint64_t number) {
    const Digest digest = digest_for(number);
    tier->remove({&digest, 1});
  }
  void touch(uint64_t number) {
    const Digest digest = digest_for(number);
    tier->touch({&digest, 1});
  }
  std::set<Digest> evicted_digests() {
    std::lock_guard lock(mutex);
    return {evicted.begin(), evicted.end()};
  }
  std::vector<std::string> segment_files() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(config.path)) {
      if (entry.path().filename().string().starts_with("segment-"))
        files.push_back(entry.path().string());
    }
    std::ranges::sort(files);
    return files;
  }

  TemporaryDirectory folder;
  DiskConfig config;
  HealthTimes times;
  std::mutex mutex;
  std::map<uint64_t, bool> results;
  std::vector<Digest> evicted;
  std::unique_ptr<DiskTier> tier;  // last: its threads may call back until its destructor ends
};

}  // namespace peercached::disk
