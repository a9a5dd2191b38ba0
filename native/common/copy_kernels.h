// Kernels of copy_and_checksum, one per instruction set. copy.cc chooses one.
//
// XXH3-64 in short (https://github.com/Cyan4973/xxHash, doc/xxhash_spec.md): above 240 bytes the
// input is a row of 64-byte stripes. Each stripe is mixed into eight 64-bit accumulators, with a
// key that slides over a fixed secret. After every block of 16 stripes the accumulators are
// scrambled. The last 64 bytes are mixed in once more. A kernel does the stripes, because there
// every byte passes through a register that can also be stored. The ends are shared code.
//
// x86-64 and aarch64 have kernels, each in a file of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace peercached {

inline constexpr size_t kStripeBytes = 64;
inline constexpr size_t kStripesPerBlock = 16;

struct CopyKernel {
  const char* name;
  // Mixes `stripes` stripes into `acc`, scrambling after each full block. With a `dest` it also
  // stores them there: on x86-64 non-temporally, if `dest` is 64-byte aligned.
  void (*mix)(uint64_t acc[8], std::byte* dest, const std::byte* source, size_t stripes);
};

// The kernels that this processor can run, best first; never empty.
std::span<const CopyKernel> copy_kernels();

// A page in steps. begin_sum() sets the accumulators. mix() takes whole blocks, but never the
// page's last byte. finish_sum() takes the rest behind `mixed_bytes`, and fences all stores. To
// publish bytes before that, fence them first.
void begin_sum(uint64_t acc[8]);
void fence_copied_bytes();
uint64_t finish_sum(const CopyKernel& kernel, uint64_t acc[8], std::byte* dest,
                    const std::byte* source, size_t mixed_bytes, size_t bytes);

// dest == nullptr: checksum only. `bytes` > kShortBytes.
inline constexpr size_t kShortBytes = 240;
uint64_t run_kernel(const CopyKernel& kernel, std::byte* dest, const std::byte* source,
                    size_t bytes);

}  // namespace peercached
