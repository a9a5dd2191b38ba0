// This node's pages for the directory and other nodes: records, promotion from disk, and the
// handover of a draining node.

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/calls.h"

namespace peercached {

namespace {

// Bounds a peer's offer before anything is allocated for it.
std::vector<RecordRow> handover_rows(const nb::bytes& packed) {
  auto rows = unpack<RecordRow>(packed, "rows");
  if (rows.size() > kHandoverPages) {
    throw std::invalid_argument("rows: " + std::to_string(rows.size()) + " pages at once, " +
                                std::to_string(kHandoverPages) + " are the limit");
  }
  for (const RecordRow& row : rows) {
    if (row.length == 0 || row.length > kHandoverPageBytesMax) {
      throw std::invalid_argument("rows: a page of " + std::to_string(row.length) + " bytes, 1.." +
                                  std::to_string(kHandoverPageBytesMax) + " can be handed over");
    }
  }
  return rows;
}

bool location_cached(Engine& engine, const nb::bytes& digest) {
  RecordRow row;
  return engine.locations().find(unpack_digest(digest), TimePoint::min(), row);
}

nb::list take_used(Engine& engine) {
  nb::list list;
  for (const auto& [holder, digests] : engine.used_pages().take()) {
    list.append(nb::make_tuple(holder, pack(digests)));
  }
  return list;
}

nb::tuple listed(const Handovers& found) {
  nb::list list;
  for (const Handover& part : found.parts) {
    list.append(nb::make_tuple(pack(part.namespace_id), part.epoch, part.idle_ms, part.moves,
                               pack(part.rows)));
  }
  return nb::make_tuple(list, found.too_large);
}

nb::tuple handovers(Engine& engine, uint64_t bytes_max) {
  return listed(unlocked([&] { return engine.offers().warmest(bytes_max); }));
}

nb::tuple filling(Engine& engine) {
  const PoolFilling filling = unlocked([&] { return engine.storage().pool().filling(); });
  return nb::make_tuple(filling.set_bytes, filling.free_bytes, filling.lost_bytes);
}

nb::tuple coldest(Engine& engine, uint64_t bytes) {
  return listed(unlocked([&] { return engine.offers().coldest(bytes); }));
}

nb::tuple adopt(Engine& engine, HolderIndex holder, const nb::bytes& namespace_id, uint64_t epoch,
                uint32_t idle_ms, uint8_t moves, bool spilled, const nb::bytes& rows,
                uint32_t timeout_ms) {
  const Handover offered{unpack_digest(namespace_id), epoch, idle_ms, moves, spilled, {}, 0,
                         handover_rows(rows)};
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  const Adopted adopted =
      unlocked([&] { return engine.adopter().adopt(holder, offered, deadline); });
  return nb::make_tuple(pack(adopted.taken), adopted.why_not, adopted.full, adopted.room.free_bytes,
                        adopted.room.coldest_idle_ms);
}

nb::tuple fetch(Engine& engine, HolderIndex holder, const nb::bytes& namespace_id, uint64_t epoch,
                uint64_t learnt_at, const nb::bytes& rows, uint32_t timeout_ms) {
  Handover part{unpack_digest(namespace_id), epoch, 0, 0, false, {}, learnt_at,
                handover_rows(rows)};
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  const Adopted adopted =
      unlocked([&] { return engine.adopter().fetch(holder, std::move(part), deadline); });
  return nb::make_tuple(pack(adopted.taken), adopted.why_not);
}

nb::list parts_of(Engine& engine, const nb::bytes& packed) {
  const InPlace<Digest> digests(packed, "digests");
  return nb::cast<nb::list>(listed(unlocked([&] { return engine.offers().of(digests); }))[0]);
}

nb::list take_fresh(Engine& engine) {
  Handovers found;
  for (auto& [holder, part] : engine.fresh().take()) found.parts.push_back(std::move(part));
  return nb::cast<nb::list>(listed(found)[0]);
}

}  // namespace

void bind_pages(nb::class_<Engine>& engine) {
  engine.def("local_rows", call(&Engine::local_pages, &LocalPages::records), nb::arg("digests"))
      .def("begin_offer", call(pool_of, &Pool::begin_offer), nb::arg("records"))
      .def("end_offer", call(pool_of, &Pool::end_offer), nb::arg("records"))
      .def("give_away", call(disk_of, &DiskPages::give_away), nb::arg("records"),
           nb::arg("unless_pinned"))
      .def("drop_moved", call(&Engine::removals, &Removals::drop_moved), nb::arg("records"))
      .def("location_cached", &location_cached, nb::arg("digest"))
      .def("promote", call(&Engine::local_pages, &LocalPages::promote), nb::arg("digests"),
           nb::arg("timeout_ms"))
      .def("warm", call(&Engine::local_pages, &LocalPages::warm), nb::arg("digests"))
      .def("take_used", &take_used)
      .def("set_taking", &Engine::set_taking, nb::arg("taking"))
      .def("handovers", &handovers, nb::arg("bytes_max"))
      .def("filling", &filling)
      .def("coldest", &coldest, nb::arg("bytes"))
      .def("set_moves", call(pool_of, &Pool::set_moves), nb::arg("digests"), nb::arg("moves"))
      .def("hot_holders", [](Engine& self) { return self.hot().holders(); })
      .def("set_replicas_max", call(&Engine::adopter, &Adopter::set_replicas_max), nb::arg("bytes"))
      .def("note_sets", &Engine::note_sets, nb::arg("on"))
      .def("has_fresh", [](Engine& self) { return self.fresh().any(); })
      .def("take_fresh", &take_fresh)
      .def("fetch", &fetch, nb::arg("holder"), nb::arg("namespace_id"), nb::arg("epoch"),
           nb::arg("learnt_at"), nb::arg("rows"), nb::arg("timeout_ms"))
      .def("removal_changes", [](Engine& self) { return self.adopter().removal_changes(); })
      .def("parts_of", &parts_of, nb::arg("digests"))
      .def("replicate", call(&Engine::adopter, &Adopter::replicate), nb::arg("timeout_ms"))
      .def("adopt", &adopt, nb::arg("holder"), nb::arg("namespace_id"), nb::arg("epoch"),
           nb::arg("idle_ms"), nb::arg("moves"), nb::arg("spilled"), nb::arg("rows"),
           nb::arg("timeout_ms"));
}

}  // namespace peercached
