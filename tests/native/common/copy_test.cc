// copy_and_checksum: the bytes arrive and nothing beside them changes. The checksum equals plain
// XXH3-64 for every length, alignment and kernel.
#include "common/copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "common/copy_kernels.h"
#include "common/types.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace peercached {
namespace {

std::vector<std::byte> random_bytes(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> out(bytes);
  for (auto& byte : out) byte = static_cast<std::byte>(random());
  return out;
}

// Every length around XXH3's internal limits, and around stripes and blocks.
std::vector<size_t> interesting_lengths() {
  std::vector<size_t> lengths;
  for (size_t n = 0; n <= 1100; ++n) lengths.push_back(n);
  for (size_t n : {size_t{2048}, size_t{4096}, size_t{16384}, size_t{131072}, size_t{1048576}})
    for (size_t around : {n - 65, n - 64, n - 63, n - 1, n, n + 1, n + 63, n + 64, n + 65})
      lengths.push_back(around);
  return lengths;
}

TEST(Copy, ChecksumIsXxh3OfTheWholeForEveryLength) {
  const auto data = random_bytes(1048576 + 128, 1);
  for (size_t bytes : interesting_lengths())
    ASSERT_EQ(checksum(data.data(), bytes), XXH3_64bits(data.data(), bytes)) << bytes;
}

TEST(Copy, CopiesExactlyTheBytesForEveryLength) {
  const auto source = random_bytes(1048576 + 128, 2);
  std::vector<std::byte> dest(source.size() + 128);
  for (size_t bytes : interesting_lengths()) {
    std::memset(dest.data(), 0x5a, bytes + 128);
    const uint64_t sum = copy_and_checksum(dest.data() + 64, source.data(), bytes);
    ASSERT_EQ(sum, XXH3_64bits(source.data(), bytes)) << bytes;
    ASSERT_EQ(std::memcmp(dest.data() + 64, source.data(), bytes), 0) << bytes;
    for (size_t i = 0; i < 64; ++i) {
      ASSERT_EQ(dest[i], std::byte{0x5a}) << bytes;
      ASSERT_EQ(dest[64 + bytes + i], std::byte{0x5a}) << bytes;
    }
  }
}

TEST(Copy, AlignmentDoesNotMatter) {
  const auto source = random_bytes(8192, 3);
  std::vector<std::byte> dest(8192 + 256);
  for (size_t from = 0; from < 65; from += 3)
    for (size_t to = 0; to < 65; ++to) {
      const size_t bytes = 4000 + from * 7 + to;
      const uint64_t sum = copy_and_checksum(dest.data() + to, source.data() + from, bytes);
      ASSERT_EQ(sum, XXH3_64bits(source.data() + from, bytes)) << from << " " << to;
      ASSERT_EQ(std::memcmp(dest.data() + to, source.data() + from, bytes), 0);
    }
}

TEST(Copy, CopyInStepsMatchesOnePass) {
  const auto source = random_bytes(300'000, 5);
  std::mt19937_64 random(6);
  std::vector<std::byte> dest(source.size() + 64);
  for (size_t bytes : {0, 1, 240, 241, 1023, 1024, 1025, 2048, 2049, 65'536, 65'537, 300'000})
    for (int round = 0; round < 50; ++round) {
      std::memset(dest.data(), 0x5a, dest.size());
      std::byte* to = round % 2 == 0 ? nullptr : dest.data() + random() % 64;
      RunningCopy copy(to, source.data());
      const size_t stride = 1 + random() % (round % 3 == 0 ? 3000 : 100'000);
      for (size_t have = 0; have < bytes; have += random() % stride + 1) copy.advance(have);
      if (round % 5 == 0) copy.advance(bytes);
      ASSERT_EQ(copy.finish(bytes), XXH3_64bits(source.data(), bytes)) << bytes;
      if (to == nullptr) continue;
      ASSERT_EQ(std::memcmp(to, source.data(), bytes), 0) << bytes;
      for (std::byte* after = to + bytes; after != dest.data() + dest.size(); ++after)
        ASSERT_EQ(*after, std::byte{0x5a}) << bytes;
    }
}

TEST(Copy, EveryKernelOfThisProcessorAgreesWithTheLibrary) {
  const auto source = random_bytes(70000, 4);
  ASSERT_FALSE(copy_kernels().empty());
  for (const CopyKernel& kernel : copy_kernels())
    for (size_t bytes = kShortBytes + 1; bytes <= source.size(); bytes += bytes / 9 + 1)
      for (size_t shift : {0, 1, 16, 32}) {
        std::vector<std::byte> room(bytes + 192, std::byte{0x5a});
        auto* aligned = room.data() + (64 - reinterpret_cast<uintptr_t>(room.data()) % 64) % 64;
        std::byte* dest = aligned + shift;
        const uint64_t expected = XXH3_64bits(source.data(), bytes);
        ASSERT_EQ(run_kernel(kernel, dest, source.data(), bytes), expected)
            << kernel.name << " " << bytes;
        ASSERT_EQ(std::memcmp(dest, source.data(), bytes), 0) << kernel.name << " " << bytes;
        ASSERT_EQ(dest[bytes], std::byte{0x5a}) << kernel.name << " " << bytes;
        ASSERT_EQ(run_kernel(kernel, nullptr, source.data(), bytes), expected) << kernel.name;
      }
}

// Nodes of both architectures share a cluster, and a pool file or a disk outlives its binary. The
// numbers are of the Python package xxhash.
TEST(Copy, ChecksumsAreTheSameOnEveryArchitecture) {
  std::vector<std::byte> data(69'999);
  for (size_t i = 0; i < data.size(); ++i) data[i] = std::byte((i * 7 + (i >> 8) * 13) & 0xff);
  const std::pair<size_t, uint64_t> expected[] = {
      {0, 0x2d06800538d394c2},    {1, 0xc44bdff4074eecdb},     {16, 0x9da23836adf2be1e},
      {240, 0x4917a75c0ef8eed7},  {241, 0x541b19226f0052e8},   {1024, 0xcbeb9f3a1aeccda2},
      {1025, 0xd95859bed3193f4f}, {65536, 0x273fb2d7122fe81a}, {69999, 0x4ea174f7ec7bcbf0},
  };
  std::vector<std::byte> dest(data.size());
  for (const auto& [bytes, sum] : expected) {
    EXPECT_EQ(checksum(data.data(), bytes), sum) << bytes;
    EXPECT_EQ(copy_and_checksum(dest.data(), data.data(), bytes), sum) << bytes;
  }
  SlotHeader header;
  std::memcpy(static_cast<void*>(&header), data.data(), sizeof header);
  seal(header);
  EXPECT_EQ(header.check, 0xef61841ec8e0bfa7);
}

}  // namespace
}  // namespace peercached
