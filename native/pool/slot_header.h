// The write order that a one-sided reader relies on.
//
//   holder   state = 0 | fence | payload ... | fence | header | release | state = committed
//   reader   header | payload | header again: both sealed, same digest and generation
//
// Suppose the reader's payload holds one byte of a later use of the slot. That use zeroed the state
// first. So the reader's second look finds no header, or one with a later generation.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "common/types.h"

namespace peercached {

// For the one test which shows that its reader detects wrong bytes when this protocol is broken.
// Nothing else sets it.
inline std::atomic<bool> skip_header_invalidation_for_test{false};

inline void invalidate_header(std::byte* header) {
  if (skip_header_invalidation_for_test.load(std::memory_order_relaxed)) return;
  auto* state = reinterpret_cast<uint32_t*>(header + offsetof(SlotHeader, state));
  std::atomic_ref<uint32_t>(*state).store(kSlotInvalid, std::memory_order_release);
}

// Call after invalidating and before writing the payload. Later writes may pass a release store,
// and the payload's streaming stores may pass even plain ones.
inline void order_invalidation_before_payload() {
#if defined(__x86_64__)
  _mm_sfence();
#elif defined(__aarch64__)
  asm volatile("dmb oshst" ::: "memory");
#else
#error "say how stores are ordered for another device on this processor"
#endif
}

// `content` is complete except for state and check. The slot's header must be invalid.
inline void publish_header(std::byte* header, SlotHeader content) {
  content.state = kSlotCommitted;
  content.version = kSlotVersion;
  seal(content);
  constexpr size_t kBefore = offsetof(SlotHeader, state);
  constexpr size_t kAfter = kBefore + sizeof content.state;
  const auto* bytes = reinterpret_cast<const std::byte*>(&content);
  std::memcpy(header, bytes, kBefore);
  std::memcpy(header + kAfter, bytes + kAfter, sizeof content - kAfter);
  auto* state = reinterpret_cast<uint32_t*>(header + kBefore);
  std::atomic_ref<uint32_t>(*state).store(kSlotCommitted, std::memory_order_release);
}

}  // namespace peercached
