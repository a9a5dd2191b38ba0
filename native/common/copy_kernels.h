// Kernels of copy_and_checksum, one per instruction set. copy.cc chooses one.
//
// XXH3-64 in short (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md): above 240 bytes the
// input is a row of 64-byte stripes. Each stripe is mixed into eight 64-bit accumulators, with a
// key that slides over a fixed secret. After every block of 16 stripes the accumulators are
// scrambled. The last 64 bytes are mixed in once more. A kernel does the stripes, because there
// every byte passes through a register that can also be stored. The ends are shared code.
//
// Only for x86-64. Elsewhere copy.cc goes block by block through the library.
#pragma once

#ifdef __x86_64__

#include <cstddef>
#include <cstdint>
#include <span>

namespace peercached {

inline constexpr size_t kStripeBytes = 64;
inline constexpr size_t kStripesPerBlock = 16;

struct CopyKernel {
  const char* name;
  // Mixes `stripes` stripes into `acc`, scrambling after each full block. With a `dest` it also
  // stores them there, non-temporally if `dest` is 64-byte aligned.
  void (*mix)(uint64_t acc[8], std::byte* dest, const std::byte* source, size_t stripes);
};

// The kernels that this processor can run, best first; never empty.
std::span<const CopyKernel> copy_kernels();

// A page in steps. begin_sum() sets the accumulators. mix() takes whole blocks, but never the
// page's last byte. finish_sum() takes the rest behind `mixed_bytes`, and fences all stores. To
// publish bytes before that, fence them first (_mm_sfence).
void begin_sum(uint64_t acc[8]);
uint64_t finish_sum(const CopyKernel& kernel, uint64_t acc[8], std::byte* dest,
                    const std::byte* source, size_t mixed_bytes, size_t bytes);

// dest == nullptr: checksum only. `bytes` > kShortBytes.
inline constexpr size_t kShortBytes = 240;
uint64_t run_kernel(const CopyKernel& kernel, std::byte* dest, const std::byte* source,
                    size_t bytes);

}  // namespace peercached

#endif  // __x86_64__
