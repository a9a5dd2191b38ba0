// Speed in GB/s, measured with pages picked at random from 512 MiB on one thread of an AMD Zen 5,
// at 16 KiB / 128 KiB / 1 MiB / 4 MiB:
//
//   memcpy (glibc)                            15.8  23.8  22.1  22.1
//   XXH3-64 alone (AVX-512)                   18.8  33.5  42.2  42.6
//   hash 8 KiB, then stream it (2 passes)     12.0  16.5  18.1  18.2
//   stream 8 KiB, then hash it                15.2  21.4  23.2  23.4
//   hash 8 KiB, then memcpy it                 9.0  15.7  17.1  17.2
//   rep movsb 16 KiB, then hash it            15.4  20.7  22.3  22.0
//   one pass, cached stores                   13.0  20.6  22.3  22.2
//   one pass, streamed stores                 15.1  25.5  29.3  29.6   <- taken
//   streamed stores without a checksum        19.5  26.8  29.4  29.6
//
// A streamed store need not read the line that it overwrites, and memcpy waits for that read. Each
// byte is loaded once, so the checksum hides behind the memory. Prefetching 1 or 4 KiB ahead gains
// at 16 KiB (16.8) and loses at 1 MiB (27).
#include "common/copy.h"

#include <cstring>

#include "common/copy_kernels.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace peercached {

namespace {
// Chosen before main. A page fault may leave a copy by a long jump (common/fault_guard.h), which
// must not leave the guard of a static's first use locked.
const CopyKernel best_kernel = copy_kernels().front();
}  // namespace

uint64_t copy_and_checksum(void* dest, const void* source, size_t bytes) {
  if (bytes <= kShortBytes) {
    std::byte once[kShortBytes];  // a worker may change its memory meanwhile
    if (bytes > 0) std::memcpy(once, source, bytes);
    if (bytes > 0) std::memcpy(dest, once, bytes);
    return checksum(once, bytes);
  }
  return run_kernel(best_kernel, static_cast<std::byte*>(dest),
                    static_cast<const std::byte*>(source), bytes);
}

uint64_t checksum(const void* data, size_t bytes) {
  if (bytes <= kShortBytes) return XXH3_64bits(data, bytes);
  return run_kernel(best_kernel, nullptr, static_cast<const std::byte*>(data), bytes);
}

static_assert(RunningCopy::kBlockBytes == kStripeBytes * kStripesPerBlock);

void RunningCopy::advance(size_t have_bytes) {
  if (have_bytes == 0) return;
  // The page's last stripe is mixed differently, and the last byte so far may be the page's last.
  const size_t upto = (have_bytes - 1) / kBlockBytes * kBlockBytes;
  if (upto <= taken_bytes_) return;
  if (taken_bytes_ == 0) begin_sum(acc_);
  best_kernel.mix(acc_, dest_ == nullptr ? nullptr : dest_ + taken_bytes_, source_ + taken_bytes_,
                  (upto - taken_bytes_) / kStripeBytes);
  taken_bytes_ = upto;
  if (dest_ != nullptr) fence_copied_bytes();
}

uint64_t RunningCopy::finish(size_t page_bytes) {
  if (taken_bytes_ != 0)
    return finish_sum(best_kernel, acc_, dest_, source_, taken_bytes_, page_bytes);
  return dest_ == nullptr ? checksum(source_, page_bytes)
                          : copy_and_checksum(dest_, source_, page_bytes);
}

}  // namespace peercached
