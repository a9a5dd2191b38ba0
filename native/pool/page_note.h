// The note behind each page's payload in a warm pool. It stores what the next process must know and
// the header does not say. A page without a valid note is not served again.
//
//   slot = | header, 64 | payload, rounded up to 4 KiB | note, 64 |
//
// The pool writes the note while the slot is reserved, so its header is invalid. Only `stamp` may
// change at any time, by one atomic store. No checksum covers it: a wrong stamp only misplaces the
// page in the eviction order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "common/types.h"

namespace peercached {

struct PageNote {
  Digest page;  // must equal the header's, else the note belongs to an earlier page
  Digest namespace_id;
  uint64_t epoch = 0;
  Position set_at = 0;  // newest removal at that time; a later removal of this page voids it
  uint64_t check = 0;   // XXH3-64 of the bytes before
  uint64_t stamp = 0;   // of the eviction order (recency.h)
};
static_assert(sizeof(PageNote) == 64);

// seal() fills `check`; sealed() verifies it.
void seal(PageNote& note);
bool sealed(const PageNote& note);

inline void stamp_note(std::byte* note, uint64_t stamp) {
  auto* word = reinterpret_cast<uint64_t*>(note + offsetof(PageNote, stamp));
  std::atomic_ref<uint64_t>(*word).store(stamp, std::memory_order_release);
}

}  // namespace peercached
