// One pass over a page: copy it and make its checksum (XXH3-64), block by block, so
// that the second use of every byte finds it in the cache.
//
// Picks the best kernel for this processor at first use (AVX-512, AVX2, SSE2).
#pragma once

#include <cstddef>
#include <cstdint>

namespace peercached {

// Non-temporal stores; use for pages that this core will not read again soon.
// `dest` and `source` must not overlap; any alignment works, 64 bytes is fastest.
uint64_t copy_and_checksum(void* dest, const void* source, size_t bytes);

// The checksum alone.
uint64_t checksum(const void* data, size_t bytes);

}  // namespace peercached
