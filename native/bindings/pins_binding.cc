// Pins of this node's pages, and the pages that are read most.

#include <nanobind/stl/string.h>

#include <algorithm>

#include "bindings/packed.h"
#include "engine/engine.h"

namespace peercached {

namespace {

nb::tuple pin(Engine& engine, const nb::bytes& packed, uint32_t for_ms, uint64_t bytes_max) {
  const InPlace<Digest> digests(packed, "digests");
  std::vector<PageStatus> statuses(std::span<const Digest>(digests).size());
  const std::string why =
      unlocked([&] { return engine.local_pages().pin(digests, for_ms, bytes_max, statuses); });
  return nb::make_tuple(pack(statuses), why);
}

nb::bytes unpin(Engine& engine, const nb::bytes& packed) {
  const InPlace<Digest> digests(packed, "digests");
  std::vector<PageStatus> statuses(std::span<const Digest>(digests).size());
  unlocked([&] { engine.storage().holds().unpin(digests, statuses); });
  return pack(statuses);
}

// Lists row_of(page, namespace id) for the pages that find(pool slot) gives. The slot is that of
// this namespace's current epoch, or 0 for all namespaces if the id is empty.
template <typename Find, typename RowOf>
nb::list by_namespace(Engine& engine, const nb::bytes& namespace_id, const Find& find,
                      const RowOf& row_of) {
  nb::list list;
  const auto namespaces = engine.storage().namespaces().by_pool_slot();
  uint32_t slot = 0;
  if (namespace_id.size() != 0) {
    const Digest wanted = unpack_digest(namespace_id);
    const auto at =
        std::ranges::find_if(namespaces, [&](const auto& one) { return one.second.id == wanted; });
    if (at == namespaces.end()) return list;
    slot = at->first;
  }
  for (const auto& page : unlocked([&] { return find(slot); })) {
    const auto ns = namespaces.find(page.namespace_slot);
    if (ns == namespaces.end()) continue;  // it was cleared
    list.append(row_of(page, pack(ns->second.id)));
  }
  return list;
}

// (digest, namespace id, bytes, seconds left)
nb::list pinned(Engine& engine, size_t limit, const nb::bytes& namespace_id) {
  const TimePoint now = Clock::now();
  return by_namespace(
      engine, namespace_id,
      [&](uint32_t slot) { return engine.storage().holds().pins(limit, slot); },
      [&](const PinRow& row, const nb::bytes& id) {
        const std::chrono::duration<double> left = std::max(row.until, now) - now;
        return nb::make_tuple(pack(row.digest), id, row.length, left.count());
      });
}

// (namespace id, pages, bytes)
nb::list pinned_by_namespace(Engine& engine) {
  nb::list list;
  const auto namespaces = engine.storage().namespaces().by_pool_slot();
  for (const auto& [slot, use] : engine.storage().holds().pinned_by_namespace())
    if (const auto ns = namespaces.find(slot); ns != namespaces.end())
      list.append(nb::make_tuple(pack(ns->second.id), use.pages, use.bytes));
  return list;
}

// (digest, namespace id, bytes, reads, seconds since the last use)
nb::list hottest(Engine& engine, size_t limit, const nb::bytes& namespace_id) {
  return by_namespace(
      engine, namespace_id,
      [&](uint32_t slot) { return engine.storage().pool().hottest(limit, slot); },
      [](const HotPage& page, const nb::bytes& id) {
        return nb::make_tuple(pack(page.digest), id, page.length, page.reads,
                              page.idle_ms / 1000.0);
      });
}

}  // namespace

void bind_pins(nb::class_<Engine>& engine) {
  engine.def("pin", &pin, nb::arg("digests"), nb::arg("for_ms"), nb::arg("bytes_max"))
      .def("unpin", &unpin, nb::arg("digests"))
      .def("pinned", &pinned, nb::arg("limit"), nb::arg("namespace_id"))
      .def("pinned_by_namespace", &pinned_by_namespace)
      .def("hottest", &hottest, nb::arg("limit"), nb::arg("namespace_id"));
}

}  // namespace peercached
