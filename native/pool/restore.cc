// Warm restart of a pool in a file: writes the notes for the next process, and brings back the
// pages of the previous one.
//
// It runs in the constructor, so nobody can read a page before it is done. Each kept page gets a
// header of this incarnation and a new generation. So a record of an earlier life of this daemon
// never matches a page of this one, even if the bytes are equal.
//
// The process may die at any instruction here too. Headers are rewritten as in slot_header.h, so at
// worst the page in hand is lost. The next start does the same again.

#include <algorithm>
#include <chrono>
#include <map>

#include "pool/pool_impl.h"
#include "pool/slot_header.h"

namespace peercached {

namespace {

// Worth least first. Pages of a chain share a stamp; its head was set first, so sorts first.
bool older(const RecoveredPage& a, const RecoveredPage& b) {
  if (a.stamp != b.stamp) return a.stamp < b.stamp;
  if (a.header.incarnation != b.header.incarnation)
    return a.header.incarnation < b.header.incarnation;
  return a.header.generation < b.header.generation;
}

using NamespaceSlots = std::map<std::pair<Digest, uint64_t>, uint32_t>;

NamespaceSlots judged(std::span<const RecoveredPage> pages, const Pool::NamespaceJudge& judge) {
  NamespaceSlots slots;
  for (const RecoveredPage& page : pages) slots[{page.namespace_id, page.epoch}] = 0;
  std::vector<PageNamespace> found;
  for (const auto& [ns, slot] : slots) found.emplace_back(0, ns.first, ns.second);
  if (judge) judge(found);
  for (const PageNamespace& ns : found) slots[{ns.id, ns.epoch}] = ns.slot;
  return slots;
}

}  // namespace

void Pool::Impl::write_note(const Slot& slot, const PageNamespace& ns) {
  PageNote note;
  if (ns.id != Digest{}) {
    note = {slot.digest, ns.id, ns.epoch, position ? position() : 0, 0, 0};
    seal(note);
  }
  std::memcpy(note_of(slot), &note, sizeof note);
}

void Pool::Impl::restore(const NamespaceJudge& judge, const RemovalJudge& is_void) {
  const TimePoint began = Clock::now();
  const PoolFile& file = *memory.file();
  recovery.file = file.path();
  recovery.why_fresh = file.why_fresh();
  if (!file.kept()) {
    file.sign(memory.base());
    return;
  }
  SpanWords words(file.span_words(memory.base()), memory.size_bytes());
  const std::vector<SpanPlace> places = words.read(recovery.damaged_spans);
  std::vector<RecoveredPage> pages = whole_pages(memory.base(), places, memory.threads(), recovery);

  const NamespaceSlots namespace_slots = judged(pages, judge);
  const auto slot_of = [&](const RecoveredPage& page) {
    return namespace_slots.at({page.namespace_id, page.epoch});
  };
  const auto header_at = [&](const RecoveredPage& page) {
    const SpanPlace& place = places[page.span];
    return memory.base() + place.offset + page.slot * place.stride_bytes;
  };
  std::erase_if(pages, [&](const RecoveredPage& page) {
    const bool removed = is_void && is_void(page.header.digest, page.set_at);
    if (!removed && slot_of(page) != 0) return false;
    invalidate_header(header_at(page));
    ++(removed ? recovery.removed : recovery.cleared);
    return true;
  });

  // A span without a page is free space.
  std::vector<std::vector<uint32_t>> ids(places.size());
  for (const RecoveredPage& page : pages)
    if (ids[page.span].empty()) ids[page.span] = space.restore(places[page.span]).slots;
  for (size_t i = 0; i < places.size(); ++i)
    if (ids[i].empty()) words.dissolved(places[i].offset);

  std::ranges::sort(pages, older);
  const Generation first = generation;
  generation += pages.size();
  for (size_t begin = 0, end = 0; begin < pages.size(); begin = end) {
    while (end < pages.size() && pages[end].stamp == pages[begin].stamp) ++end;
    // Restore the tail of a chain first: it must be colder than its head.
    for (size_t i = end; i-- > begin;) {
      const RecoveredPage& page = pages[i];
      if (slots.find(page.header.digest) != kNoSlot) {
        invalidate_header(header_at(page));
        ++recovery.duplicates;
        continue;
      }
      bring_back(page, ids[page.span][page.slot], slot_of(page), first + i);
    }
  }
  recovery.pages = counters.keys;
  recovery.bytes = counters.payload_bytes;
  recovery.seconds = std::chrono::duration<double>(Clock::now() - began).count();
}

void Pool::Impl::bring_back(const RecoveredPage& page, uint32_t id, uint32_t namespace_slot,
                            Generation page_generation) {
  space.take_restored(id);
  Slot& slot = slots[id];
  invalidate_header(header_of(slot));
  slot.digest = page.header.digest;
  slot.length = static_cast<uint32_t>(page.header.length);
  slot.checksum = page.header.checksum;
  slot.generation = page_generation;
  slot.namespace_slot = namespace_slot;
  slot.pins = 0;
  slot.parent = kNoSlot;
  ++slot.uses;
  write_header(slot, page.header.born);
  slots.insert(id);
  slot.state = SlotState::committed;
  space.let_go(slot);
  NamespacePages& own = namespaces.pages[namespace_slot];
  ++own.keys;
  own.bytes += space.span_of(slot).size_class->stride_bytes;
  recency.restored(id, page.stamp);
  ++counters.keys;
  counters.payload_bytes += slot.length;
}

void Pool::note_removals(const TierNote& note) {
  if (const PoolFile* file = impl_->memory.file()) file->note_removals(impl_->memory.base(), note);
}

const RecoveryReport& Pool::recovery() const { return impl_->recovery; }

void Pool::remember_order() {
  if (impl_->memory.file() == nullptr) return;
  MutexLock lock(impl_->mutex);
  for (uint32_t id = 0; id < impl_->slots.end(); ++id) {
    const Slot& slot = impl_->slots[id];
    if (slot.state == SlotState::committed) stamp_note(impl_->note_of(slot), slot.stamp);
  }
}

}  // namespace peercached
