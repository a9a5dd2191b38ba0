// Slots that somebody has reserved or pinned. However their holder ends, they go back to the pool:
// a reserved slot becomes free, and a page loses the pin.
#pragma once

#include <new>
#include <span>
#include <utility>
#include <vector>

#include "pool/pool.h"

namespace peercached {

class HeldSlots {
 public:
  explicit HeldSlots(Pool& pool) : pool_(&pool) {}
  // Pool::reserve(). pages()[i] is that of requests[i], or empty.
  HeldSlots(Pool& pool, std::span<const PageRequest> requests, const Digest* parent,
            const PageNamespace& ns, std::span<Reservation> out, Replace replace = Replace::yes);
  ~HeldSlots() { give_back(pages_); }
  HeldSlots(HeldSlots&& other) noexcept
      : pool_(other.pool_), pages_(std::exchange(other.pages_, {})) {}
  HeldSlots& operator=(HeldSlots&& other) noexcept {  // of the same pool
    pages_.swap(other.pages_);
    return *this;
  }

  std::span<PinnedPage> pages() { return pages_; }
  // Takes the slot over from its holder.
  void take(PinnedPage& page) {
    pages_.push_back(page);
    page = {};
  }
  // These two are all that it holds. The others go back.
  void keep(std::vector<PinnedPage> kept, std::span<const PinnedPage> others) noexcept {
    pages_.swap(kept);
    give_back(others);
  }

 private:
  void give_back(std::span<const PinnedPage> pages) const noexcept {
    if (pages.empty()) return;
    try {
      pool_->give_back(pages);
    } catch (const std::bad_alloc&) {
      // Slots are lost until the daemon ends: the pool has no memory to note that a span is free.
    }
  }

  Pool* pool_;
  std::vector<PinnedPage> pages_;
};

}  // namespace peercached
