// Pins of this node's pages, and the pages that are read most.

#include <nanobind/stl/string.h>

#include "bindings/packed.h"
#include "engine/engine.h"

namespace peercached {

namespace {

nb::tuple pin(Engine& engine, const nb::bytes& packed, uint32_t for_ms, uint64_t bytes_max) {
  const InPlace<Digest> digests(packed, "digests");
  std::vector<PinOutcome> outcomes(std::span<const Digest>(digests).size());
  const std::string why =
      unlocked([&] { return engine.local_pages().pin(digests, for_ms, bytes_max, outcomes); });
  std::vector<PageStatus> statuses;
  for (const PinOutcome outcome : outcomes)
    statuses.push_back(outcome == PinOutcome::pinned   ? PageStatus::ok
                       : outcome == PinOutcome::absent ? PageStatus::absent
                                                       : PageStatus::no_space);
  return nb::make_tuple(pack(statuses), why);
}

nb::bytes unpin(Engine& engine, const nb::bytes& packed) {
  const InPlace<Digest> digests(packed, "digests");
  std::vector<uint8_t> was_pinned(std::span<const Digest>(digests).size());
  unlocked([&] { engine.storage().holds().unpin(digests, was_pinned); });
  std::vector<PageStatus> statuses;
  for (const uint8_t was : was_pinned)
    statuses.push_back(was != 0 ? PageStatus::ok : PageStatus::absent);
  return pack(statuses);
}

// The pool slot of a namespace's current epoch. An empty id: 0, for all namespaces.
std::optional<uint32_t> slot_of(Engine& engine, const nb::bytes& namespace_id) {
  if (namespace_id.size() == 0) return 0;
  const Digest wanted = unpack_digest(namespace_id);
  for (const auto& [slot, ns] : engine.storage().namespaces().by_pool_slot())
    if (ns.id == wanted) return slot;
  return std::nullopt;
}

// (digest, namespace id, bytes, seconds left)
nb::list pinned(Engine& engine, size_t limit, const nb::bytes& namespace_id) {
  nb::list list;
  const auto slot = slot_of(engine, namespace_id);
  if (!slot) return list;
  const auto namespaces = engine.storage().namespaces().by_pool_slot();
  const auto rows = unlocked([&] { return engine.storage().holds().pins(limit, *slot); });
  const TimePoint now = Clock::now();
  for (const PinRow& row : rows) {
    const auto ns = namespaces.find(row.namespace_slot);
    if (ns == namespaces.end()) continue;  // it was cleared
    const std::chrono::duration<double> left = std::max(row.until, now) - now;
    list.append(nb::make_tuple(pack(row.digest), pack(ns->second.id), row.length, left.count()));
  }
  return list;
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
  nb::list list;
  const auto slot = slot_of(engine, namespace_id);
  if (!slot) return list;
  const auto namespaces = engine.storage().namespaces().by_pool_slot();
  const auto pages = unlocked([&] { return engine.storage().pool().hottest(limit, *slot); });
  for (const HotPage& page : pages) {
    const auto ns = namespaces.find(page.namespace_slot);
    if (ns == namespaces.end()) continue;
    list.append(nb::make_tuple(pack(page.digest), pack(ns->second.id), page.length, page.reads,
                               page.idle_ms / 1000.0));
  }
  return list;
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
