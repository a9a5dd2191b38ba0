// Surviving a worker that pulls its memory away.
//
// A region is the worker's own memfd. Where it could not be sealed against shrinking the
// worker may truncate it, and the next touch of the mapping raises SIGBUS in our process.
// `guarded` runs `body` so that such a fault inside [base, base + bytes) returns false
// instead of ending the daemon. `body` must own nothing that needs a destructor and take
// no lock: it is left by a long jump.
#pragma once

#include <cstddef>

namespace peercached {

// Once per process, before the first `guarded`. Faults elsewhere keep the old behaviour.
void install_fault_guard();

bool guarded(const void* base, size_t bytes, void (*body)(void* context), void* context);

}  // namespace peercached
