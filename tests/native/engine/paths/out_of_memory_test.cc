// A set that runs out of memory, at each of its allocations in turn.

#include <cstdlib>
#include <new>
#include <utility>

#include "engine/engine_fixture.h"

namespace peercached {
namespace {

thread_local int64_t allocations_left = -1;  // of this thread, until one fails; below 0: none fails

TEST_F(EnginePair, SetThatRunsOutOfMemoryGivesItsSlotsBack) {
  open(64 << 20);
  Pool& pool = a_->engine.storage().pool();
  Pages held = a_->stored("held", 2, 4096);
  unsigned failed = 0;
  for (int64_t left = 0;; ++left) {
    Pages pages("k" + std::to_string(left) + "/", 4, 4096);
    pages.keys[1] = held.keys[0];
    pages.fill();
    auto refs = pages.refs();
    const RequestContext context = a_->context(kPatienceMs);
    allocations_left = left;
    try {
      a_->engine.set(context, refs);
    } catch (const std::bad_alloc&) {
      ++failed;
    }
    const bool ran_out = std::exchange(allocations_left, -1) == -1;
    ASSERT_EQ(pool.stats().reserved, 0u) << "allocation " << left;
    ASSERT_TRUE(eventually([&] { return pool.stats().pins == 0; })) << "allocation " << left;
    if (!ran_out) break;
  }
  EXPECT_GT(failed, 10u);
  EXPECT_EQ(a_->set(held), std::vector(2, PageStatus::ok));
}

}  // namespace
}  // namespace peercached

// NOLINTBEGIN(misc-new-delete-overloads)
// Not inline, or GCC takes free() for a wrong match of new.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (peercached::allocations_left >= 0 && peercached::allocations_left-- == 0)
    throw std::bad_alloc();
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
// The sanitizers' own would not be freed by the delete below.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
// NOLINTEND(misc-new-delete-overloads)
