// Beside each page of a warm pool, behind its payload: what the header does not say and the next
// process must know. A header without its note is not served again.
//
//   slot = | header, 64 | payload, rounded up to 4 KiB | note, 64 |
//
// Written while the slot is reserved (its header is invalid), all but `stamp`, which is one store
// of its own at any time: it is in no check, for a wrong one only misplaces the page.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "common/types.h"

namespace peercached {

struct PageNote {
  Digest page;  // the header's: a note of an earlier page in this slot is none
  Digest namespace_id;
  uint64_t epoch = 0;
  Position set_at = 0;  // of the newest removal then: a later one of this page makes it void
  uint64_t check = 0;   // XXH3-64 of the bytes before
  uint64_t stamp = 0;   // how recently used: the pool's touch clock
};
static_assert(sizeof(PageNote) == 64);

// Fills `check`; whether it is right.
void seal(PageNote& note);
bool sealed(const PageNote& note);

inline void stamp_note(std::byte* note, uint64_t stamp) {
  auto* word = reinterpret_cast<uint64_t*>(note + offsetof(PageNote, stamp));
  std::atomic_ref<uint64_t>(*word).store(stamp, std::memory_order_release);
}

}  // namespace peercached
