// Files damaged between two runs cause misses and raise counters, but never return wrong bytes.
#include <fstream>
#include <random>

#include "disk/record_read.h"
#include "disk_fixture.h"

namespace peercached::disk {
namespace {

class DiskCorruption : public DiskFixture {
 protected:
  static constexpr uint64_t kPages = 120;
  using Files = std::map<std::string, std::string>;  // name -> content

  static uint32_t length_of(uint64_t number) { return 500 + 97 * static_cast<uint32_t>(number); }

  // Some sealed segments that hold removed and replaced pages among the others.
  void fill() {
    config.size_bytes = 4 * kMiB;
    config.segment_bytes = 256 * kKiB;
    open();
    for (uint64_t i = 0; i < kPages; ++i) ASSERT_EQ(put(i, length_of(i), 9), PutOutcome::queued);
    flush();
    for (uint64_t i = 0; i < kPages; i += 3) ASSERT_EQ(put(i, length_of(i), 1), PutOutcome::queued);
    flush();
    for (uint64_t i = 0; i < kPages; i += 5) remove(i);
    flush();
    close();
    for (const auto& entry : std::filesystem::directory_iterator(config.path)) {
      std::ifstream in(entry.path(), std::ios::binary);
      files[entry.path().filename().string()] = {std::istreambuf_iterator<char>(in), {}};
    }
  }
  void write(const Files& content) {
    std::filesystem::remove_all(config.path);
    std::filesystem::create_directory(config.path);
    for (const auto& [name, bytes] : content) {
      std::ofstream(config.path + "/" + name, std::ios::binary)
          .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
  }
  // Opens and reads everything; returns how many pages were there. Damage to a newer version or to
  // a removal may bring an old version back. It may never produce other bytes.
  uint64_t pages_right() {
    open();
    std::vector<std::vector<std::byte>> dest;
    std::vector<DiskRead> batch;
    for (uint64_t i = 0; i < kPages; ++i) {
      std::byte* to = dest.emplace_back(length_of(i)).data();
      batch.push_back({digest_for(i), to, length_of(i), PageStatus::pending, 0});
    }
    tier->read(batch, Deadline::after_ms(60'000), true);
    uint64_t right = 0;
    for (uint64_t i = 0; i < kPages; ++i) {
      if (batch[i].status != PageStatus::ok) continue;
      ++right;
      EXPECT_TRUE(dest[i] == payload_of(i, length_of(i), 9) ||
                  dest[i] == payload_of(i, length_of(i), 1))
          << "wrong bytes: " << i;
    }
    last = tier->stats();
    close();
    return right;
  }
  std::string any_segment() {
    std::vector<std::string> names;
    for (const auto& [name, bytes] : files) {
      if (name.starts_with("segment-")) names.push_back(name);
    }
    return names[random() % names.size()];
  }

  Files files;
  DiskStats last;
  std::mt19937_64 random{7};
};

TEST_F(DiskCorruption, TurnedBitsCostAtMostThePagesTheyHit) {
  fill();
  const uint64_t all = pages_right();
  EXPECT_EQ(all, kPages - kPages / 5);
  uint64_t noticed = 0;
  for (int round = 0; round < 60 && !HasFailure(); ++round) {
    Files damaged = files;
    const int bits = 1 << random() % 6;
    for (int i = 0; i < bits; ++i) {
      std::string& bytes = damaged[any_segment()];
      // Headers and footers are small, so aim often at the ends of the file.
      uint64_t at = random() % bytes.size();
      if (random() % 4 == 0) at %= 4096 + 128;
      if (random() % 4 == 0) at = bytes.size() - 1 - random() % 5000;
      bytes[at] = static_cast<char>(bytes[at] ^ 1 << random() % 8);
    }
    write(damaged);
    pages_right();
    noticed +=
        last.reads_corrupt + last.recovery.corrupt + last.recovery.rejected + last.recovery.walked;
  }
  EXPECT_GT(noticed, 20u);
}

TEST_F(DiskCorruption, ALostFooterCostsNothing) {
  fill();
  const uint64_t all = pages_right();
  Files damaged = files;
  uint64_t segments = 0;
  for (auto& [name, bytes] : damaged) {
    if (!name.starts_with("segment-")) continue;
    bytes[bytes.size() - 4096] ^= 1;
    ++segments;
  }
  write(damaged);
  EXPECT_EQ(pages_right(), all);
  EXPECT_EQ(last.recovery.walked, segments);
  EXPECT_EQ(pages_right(), all);
  EXPECT_EQ(last.recovery.walked, 0u) << "they were sealed again";
}

TEST_F(DiskCorruption, TruncatedZeroedAndMixedUpSegmentsAreSurvived) {
  fill();
  for (int round = 0; round < 60 && !HasFailure(); ++round) {
    Files damaged = files;
    const std::string name = any_segment(), other = any_segment();
    std::string& bytes = damaged[name];
    switch (round % 5) {
      case 0:
        bytes.resize(random() % bytes.size());
        break;
      case 1:
        bytes.resize(bytes.size() + random() % 10'000, 'x');
        break;
      case 2: {
        const size_t at = random() % bytes.size();
        bytes.replace(at, bytes.size() - at, bytes.size() - at, '\0');
        break;
      }
      case 3:
        std::swap(bytes, damaged[other]);
        break;
      case 4: {  // blocks of one file in the other, as after a misdirected write
        std::string& into = damaged[other];
        const size_t blocks = std::min(bytes.size(), into.size()) / 4096;
        const size_t at = random() % blocks * 4096, from = random() % blocks * 4096;
        into.replace(at, 4096, bytes.substr(from, 4096));
        break;
      }
    }
    write(damaged);
    pages_right();
  }
}

TEST_F(DiskCorruption, AForeignSegmentIsRejected) {
  fill();
  const Files mine = files;
  files.clear();
  std::filesystem::remove_all(config.path);
  config.identity[0] = std::byte{1};
  fill();
  Files mixed = mine;
  uint64_t foreign = 0;
  for (const auto& [name, bytes] : files) {
    if (!name.starts_with("segment-")) continue;
    mixed["segment-00000009" + name.substr(16)] = bytes;
    ++foreign;
  }
  config.identity = {};
  write(mixed);
  EXPECT_EQ(pages_right(), kPages - kPages / 5);
  EXPECT_EQ(last.recovery.rejected, foreign);
}

TEST_F(DiskCorruption, FlippedBitInAMultiReadPageIsAMiss) {
  config.size_bytes = 64 * kMiB;
  config.segment_bytes = 16 * kMiB;
  open();
  constexpr uint32_t kLength = 3 * kReadBytesMax + 12'345;
  constexpr uint64_t kTimes = 8;
  store(1, kLength);
  ASSERT_EQ(read(1, kLength), PageStatus::ok);
  close();
  const std::string file = segment_files().front();
  for (uint64_t i = 0; i < kTimes; ++i) {
    // At least once in each of its reads, behind the headers at the begin of the file.
    const auto at = static_cast<std::streamoff>(8192 + (i * kLength + random() % kLength) / kTimes);
    const auto turn = [&] {
      std::fstream on_disk(file, std::ios::binary | std::ios::in | std::ios::out);
      on_disk.seekg(at);
      const auto byte = static_cast<char>(on_disk.get() ^ 0x10);
      on_disk.seekp(at);
      on_disk.put(byte);
    };
    turn();
    open();
    EXPECT_EQ(read(1, kLength), PageStatus::absent) << at;
    close();
    turn();
  }
}

}  // namespace
}  // namespace peercached::disk
