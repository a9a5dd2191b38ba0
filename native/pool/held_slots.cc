#include "pool/held_slots.h"

namespace peercached {

HeldSlots::HeldSlots(Pool& pool, std::span<const PageRequest> requests, const Digest* parent,
                     const PageNamespace& ns, std::span<Reservation> out, Replace replace)
    : HeldSlots(pool) {
  pages_.reserve(requests.size());
  const struct Taking {  // also when reserve() throws
    std::vector<PinnedPage>& pages;
    std::span<const Reservation> reserved;
    ~Taking() {
      for (const Reservation& one : reserved) pages.push_back(one.page);
    }
  } taking{pages_, out.first(requests.size())};
  pool.reserve(requests, parent, ns, out, replace);
}

}  // namespace peercached
