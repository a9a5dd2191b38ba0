// How XXH3 numbers its stripes and keys, for the kernels of copy_kernels.h only.
#pragma once

#include <cstddef>

#include "common/copy_kernels.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

// A kernel's loop keeps the accumulators in registers only if these functions become part of it.
#define PC_INLINE __attribute__((always_inline)) static inline

namespace peercached {

// Stripe i of a block uses the secret from byte 8 i on. The scramble uses the secret's last 64
// bytes.
inline constexpr size_t kKeyStepBytes = 8;
inline constexpr size_t kScrambleKey = XXH_SECRET_DEFAULT_SIZE - kStripeBytes;
static_assert(kScrambleKey / kKeyStepBytes == kStripesPerBlock);

// Where a kernel puts the bytes that it has loaded.
enum class Store { none, cached, streamed };

}  // namespace peercached
