// A kernel with NEON, which every aarch64 processor has.
#ifdef __aarch64__

#include <arm_neon.h>

#include "common/copy_kernels.h"
#include "common/copy_stripes.h"

namespace peercached {
namespace {

// Pages have any alignment, so all loads and stores go by bytes.
PC_INLINE uint64x2_t load_neon(const void* from) {
  return vreinterpretq_u64_u8(vld1q_u8(static_cast<const uint8_t*>(from)));
}

// Half a stripe. Two registers share the instructions that part the low words from the high ones.
// The stores are plain ones: these processors notice by themselves that whole lines are written.
template <Store store>
PC_INLINE void half_neon(uint64x2_t acc[2], std::byte* dest, const std::byte* source,
                         const unsigned char* key) {
  const uint64x2_t value0 = load_neon(source);
  const uint64x2_t value1 = load_neon(source + 16);
  if constexpr (store != Store::none) {
    vst1q_u8(reinterpret_cast<uint8_t*>(dest), vreinterpretq_u8_u64(value0));
    vst1q_u8(reinterpret_cast<uint8_t*>(dest) + 16, vreinterpretq_u8_u64(value1));
  }
  const uint32x4_t keyed0 = vreinterpretq_u32_u64(veorq_u64(value0, load_neon(key)));
  const uint32x4_t keyed1 = vreinterpretq_u32_u64(veorq_u64(value1, load_neon(key + 16)));
  const uint32x4_t low = vuzp1q_u32(keyed0, keyed1);
  const uint32x4_t high = vuzp2q_u32(keyed0, keyed1);
  const uint64x2_t swapped0 = vextq_u64(value0, value0, 1);
  const uint64x2_t swapped1 = vextq_u64(value1, value1, 1);
  acc[0] = vmlal_u32(vaddq_u64(acc[0], swapped0), vget_low_u32(low), vget_low_u32(high));
  acc[1] = vmlal_high_u32(vaddq_u64(acc[1], swapped1), low, high);
}

PC_INLINE uint64x2_t scramble_neon(uint64x2_t acc, const unsigned char* key) {
  const uint32x2_t prime = vdup_n_u32(XXH_PRIME32_1);
  const uint64x2_t keyed = veorq_u64(veorq_u64(acc, vshrq_n_u64(acc, 47)), load_neon(key));
  const uint64x2_t high = vshlq_n_u64(vmull_u32(vshrn_n_u64(keyed, 32), prime), 32);
  return vmlal_u32(high, vmovn_u64(keyed), prime);
}

template <Store store>
void blocks_neon(uint64_t acc_out[8], std::byte* dest, const std::byte* source, size_t stripes) {
  const unsigned char* secret = XXH3_kSecret;
  uint64x2_t acc[4];
  for (size_t lane = 0; lane < 4; ++lane) acc[lane] = vld1q_u64(acc_out + 2 * lane);
  size_t in_block = 0;
  for (size_t i = 0; i < stripes; ++i) {
    const unsigned char* key = secret + in_block * kKeyStepBytes;
    half_neon<store>(acc, dest, source, key);
    half_neon<store>(acc + 2, dest + 32, source + 32, key + 32);
    source += kStripeBytes;
    dest += kStripeBytes;
    if (++in_block == kStripesPerBlock) {
      for (size_t lane = 0; lane < 4; ++lane)
        acc[lane] = scramble_neon(acc[lane], secret + kScrambleKey + lane * 16);
      in_block = 0;
    }
  }
  for (size_t lane = 0; lane < 4; ++lane) vst1q_u64(acc_out + 2 * lane, acc[lane]);
}

void mix_neon(uint64_t acc[8], std::byte* dest, const std::byte* source, size_t stripes) {
  // `none` stores nothing, but advances its destination like the other.
  if (dest == nullptr)
    return blocks_neon<Store::none>(acc, const_cast<std::byte*>(source), source, stripes);
  blocks_neon<Store::cached>(acc, dest, source, stripes);
}

constexpr CopyKernel kNeon{"neon", mix_neon};

}  // namespace

std::span<const CopyKernel> copy_kernels() { return {&kNeon, 1}; }

void fence_copied_bytes() {
  // Devices read pages, too: the fence reaches beyond the processors.
  asm volatile("dmb oshst" ::: "memory");
}

}  // namespace peercached

#endif  // __aarch64__
