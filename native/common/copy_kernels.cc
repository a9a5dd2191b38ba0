// The ends of a checksum, which are the same for all kernels.
#include "common/copy_kernels.h"

#include <cstring>

#include "common/copy_stripes.h"

namespace peercached {
namespace {

constexpr size_t kLastStripeKey = kScrambleKey - 7;
constexpr size_t kMergeKey = 11;

uint64_t load64(const void* from) {
  uint64_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

__extension__ using Product = unsigned __int128;

uint64_t folded_product(uint64_t a, uint64_t b) {
  const auto product = static_cast<Product>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t merged(const uint64_t acc[8], size_t bytes) {
  uint64_t sum = bytes * XXH_PRIME64_1;
  for (size_t i = 0; i < 8; i += 2) {
    const unsigned char* key = XXH3_kSecret + kMergeKey + i * 8;
    sum += folded_product(acc[i] ^ load64(key), acc[i + 1] ^ load64(key + 8));
  }
  sum ^= sum >> 37;
  sum *= 0x165667919E3779F9ULL;
  return sum ^ (sum >> 32);
}

// The last stripe overlaps the one before, and has its own key.
void mix_last_stripe(uint64_t acc[8], const std::byte* source) {
  for (size_t lane = 0; lane < 8; ++lane) {
    const uint64_t value = load64(source + lane * 8);
    const uint64_t keyed = value ^ load64(XXH3_kSecret + kLastStripeKey + lane * 8);
    acc[lane ^ 1] += value;
    acc[lane] += (keyed & 0xffffffff) * (keyed >> 32);
  }
}

}  // namespace

void begin_sum(uint64_t acc[8]) {
  constexpr uint64_t kStart[8] = {XXH_PRIME32_3, XXH_PRIME64_1, XXH_PRIME64_2, XXH_PRIME64_3,
                                  XXH_PRIME64_4, XXH_PRIME32_2, XXH_PRIME64_5, XXH_PRIME32_1};
  std::memcpy(acc, kStart, sizeof kStart);
}

uint64_t finish_sum(const CopyKernel& kernel, uint64_t acc[8], std::byte* dest,
                    const std::byte* source, size_t mixed_bytes, size_t bytes) {
  const size_t stripes = (bytes - mixed_bytes - 1) / kStripeBytes;
  kernel.mix(acc, dest == nullptr ? nullptr : dest + mixed_bytes, source + mixed_bytes, stripes);
  // A worker may change its memory meanwhile, so these bytes are read once for both.
  std::byte last[kStripeBytes];
  std::memcpy(last, source + bytes - kStripeBytes, sizeof last);
  mix_last_stripe(acc, last);
  if (dest != nullptr) {
    const size_t left = bytes - mixed_bytes - stripes * kStripeBytes;
    std::memcpy(dest + bytes - left, last + sizeof last - left, left);
    fence_copied_bytes();
  }
  return merged(acc, bytes);
}

uint64_t run_kernel(const CopyKernel& kernel, std::byte* dest, const std::byte* source,
                    size_t bytes) {
  alignas(64) uint64_t acc[8];
  begin_sum(acc);
  return finish_sum(kernel, acc, dest, source, 0, bytes);
}

}  // namespace peercached
