// Survives a worker that pulls its memory away.
//
// A region is the worker's own memfd. If it could not be sealed against shrinking, the worker may
// truncate it. The next touch of the mapping then raises SIGBUS in our process. `guarded` runs
// `body` so that such a fault inside [base, base + bytes) returns false instead of ending the
// daemon. A long jump leaves `body`, so it must own nothing that needs a destructor, and take no
// lock.
#pragma once

#include <cstddef>
#include <type_traits>

namespace peercached {

// Call before the first `guarded`. Faults elsewhere are handled as before.
void install_fault_guard();

bool guarded(const void* base, size_t bytes, void (*body)(void* context), void* context);

template <typename Body>
bool guarded(const void* base, size_t bytes, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  return guarded(
      base, bytes, [](void* it) { (*static_cast<Plain*>(it))(); }, &body);
}

}  // namespace peercached
