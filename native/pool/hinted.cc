// Pages that a hint brought here, wants to keep for a while, or does not need any more.

#include "pool/pool_impl.h"

namespace peercached {

uint32_t Pool::Impl::find_of(uint32_t namespace_slot, const Digest& digest) const {
  const uint32_t id = find_committed(digest);
  return id != kNoSlot && slots[id].namespace_slot == namespace_slot && !slots[id].leaving
             ? id
             : kNoSlot;
}

void Pool::Impl::set_hinted(Slot& slot, bool hinted) {
  if (slot.hinted == hinted) return;
  slot.hinted = hinted;
  uint64_t& own = namespaces.pages[slot.namespace_slot].hinted_bytes;
  counters.hinted.keys += hinted ? 1 : uint64_t{0} - 1;
  counters.hinted.bytes += hinted ? slot.length : 0 - uint64_t{slot.length};
  own += hinted ? slot.length : 0 - uint64_t{slot.length};
}

void Pool::Impl::set_retained(Slot& slot, bool retained) {
  if (slot.retained == retained) return;
  slot.retained = retained;
  uint64_t& own = namespaces.pages[slot.namespace_slot].retained_bytes;
  counters.retained.keys += retained ? 1 : uint64_t{0} - 1;
  counters.retained.bytes += retained ? slot.length : 0 - uint64_t{slot.length};
  own += retained ? slot.length : 0 - uint64_t{slot.length};
}

void Pool::set_hinted(uint32_t namespace_slot, std::span<const Digest> digests) {
  MutexLock lock(impl_->mutex);
  const uint32_t now_ms = impl_->now_ms();
  uint32_t before = kNoSlot;
  for (const Digest& digest : digests) {
    const uint32_t id = impl_->find_of(namespace_slot, digest);
    // A retained page stays, and a pinned one is in use.
    if (id == kNoSlot || impl_->slots[id].retained || impl_->slots[id].pins > 0) continue;
    impl_->set_hinted(impl_->slots[id], true);
    impl_->recency.hinted(id, before, now_ms);
    before = id;
  }
}

void Pool::retain(uint32_t namespace_slot, std::span<const Digest> digests, uint64_t bytes_max,
                  uint64_t namespace_bytes_max, std::span<PageStatus> statuses,
                  std::span<KeptPage> pages) {
  MutexLock lock(impl_->mutex);
  for (size_t i = 0; i < digests.size(); ++i) {
    statuses[i] = PageStatus::absent;
    pages[i] = {};
    const uint32_t id = impl_->find_of(namespace_slot, digests[i]);
    if (id == kNoSlot) continue;
    Slot& slot = impl_->slots[id];
    const uint64_t own = impl_->namespaces.pages[namespace_slot].retained_bytes;
    if (!slot.retained && (impl_->counters.retained.bytes + slot.length > bytes_max ||
                           own + slot.length > namespace_bytes_max)) {
      statuses[i] = PageStatus::no_space;
      continue;
    }
    impl_->set_retained(slot, true);
    statuses[i] = PageStatus::ok;
    pages[i] = {slot.digest, slot.generation, slot.length, slot.namespace_slot};
  }
}

void Pool::unretain(std::span<const KeptPage> pages) {
  MutexLock lock(impl_->mutex);
  for (const KeptPage& page : pages) {
    const uint32_t id = impl_->find_committed(page.digest);
    if (id == kNoSlot || impl_->slots[id].generation != page.generation) continue;
    impl_->set_retained(impl_->slots[id], false);
    impl_->recency.unretained(id);
  }
  // The evictor may have nothing else.
  impl_->wake_evictor();
}

void Pool::first_to_go(uint32_t namespace_slot, std::span<const Digest> digests,
                       std::span<PageStatus> statuses) {
  MutexLock lock(impl_->mutex);
  for (size_t i = 0; i < digests.size(); ++i) {
    const uint32_t id = impl_->find_of(namespace_slot, digests[i]);
    statuses[i] = id == kNoSlot ? PageStatus::absent : PageStatus::ok;
    if (id == kNoSlot) continue;
    impl_->set_retained(impl_->slots[id], false);
    impl_->recency.first_to_go(id);
  }
}

}  // namespace peercached
