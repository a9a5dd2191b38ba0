// The engine's ring and its shard of the directory.

#include <nanobind/stl/vector.h>

#include <chrono>

#include "bindings/calls.h"

namespace peercached {

namespace {

std::shared_ptr<const Ring> ring_of(Engine& engine) {
  auto ring = engine.directory().ring();
  if (!ring) throw std::invalid_argument("no ring is set yet: call set_ring first");
  return ring;
}

// Bindings of functions that take the ring or the shard first.
template <typename Result, typename... Arguments>
auto on_ring(Result (*function)(const Ring&, Arguments...)) {
  return [function](Engine& engine, Arguments... given) {
    return function(*ring_of(engine), given...);
  };
}
// (pages present on any node, [(holder, pages, of these in its pool)])
nb::tuple prefixes(Engine& engine, const nb::bytes& digests, const nb::bytes& rows) {
  const InPlace<Digest> asked(digests, "digests");
  const InPlace<RecordRow> learnt(rows, "rows");
  const ClusterPrefix found = unlocked([&] { return engine.prefixes().find(asked, learnt); });
  nb::list nodes;
  for (const NodePrefix& node : found.nodes) {
    nodes.append(nb::make_tuple(node.holder, node.pages, node.in_pool));
  }
  return nb::make_tuple(found.present, nodes);
}

// Members with records that answer here.
std::vector<HolderIndex> followed(const Engine& engine) {
  return engine.directory().records().holders();
}

// [(incarnation, changes that it lacks, whether it has a lease)]
nb::list followers(Engine& engine) {
  nb::list list;
  for (const auto& one : engine.publisher().feed().feed().standings(Clock::now()))
    list.append(nb::make_tuple(one.follower, one.behind, one.has_lease));
  return list;
}

nb::bytes find_records(Engine& engine, const nb::bytes& packed, uint32_t timeout_ms) {
  const InPlace<Digest> digests(packed, "digests");
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  return pack(unlocked([&] { return engine.locator().find_all(digests, deadline); }));
}

// (rows, whether they are all); nothing: no answer.
nb::object ask_owner(Engine& engine, HolderIndex owner, const nb::bytes& packed,
                     uint32_t timeout_ms) {
  const InPlace<Digest> digests(packed, "digests");
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  const auto answer =
      unlocked([&] { return engine.locator().ask_owner(owner, digests, deadline); });
  if (!answer) return nb::none();
  return nb::make_tuple(pack(answer->first), answer->second);
}

nb::list same_keys(Engine& engine) {
  nb::list found;
  for (const auto& node : engine.nodes().all()) {
    const SameKeys& keys = engine.nodes().same_keys(node.index);
    if (const uint64_t compared = keys.compared.load(); compared != 0) {
      found.append(nb::make_tuple(node.index, compared, keys.differed.load()));
    }
  }
  return found;
}

}  // namespace

void bind_directory(nb::class_<Engine>& engine) {
  engine
      .def(
          "set_ring",
          [](Engine& self, const nb::bytes& positions, const nb::bytes& nodes, unsigned replicas,
             uint64_t view_number) {
            self.set_ring(
                std::make_shared<const Ring>(make_ring(positions, nodes, replicas, view_number)));
          },
          nb::arg("positions"), nb::arg("nodes"), nb::arg("replicas"), nb::arg("view_number"))
      .def("owners", on_ring(&owners_list), nb::arg("digest"))
      .def("same_keys", &same_keys)
      .def("ring_shares", on_ring(&shares_list), nb::arg("owners") = 1)

      .def("prefixes", &prefixes, nb::arg("digests"), nb::arg("rows"))
      .def("followed", &followed)
      .def_prop_ro("stores_all",
                   [](Engine& self) { return !self.directory().records().stores_owned(); })
      .def_prop_ro("follows", [](Engine& self) { return self.peers().follows(); })
      .def_prop_ro("final_view",
                   [](Engine& self) { return self.directory().records().final_view(); })
      .def("followers", &followers)
      .def_prop_ro("all_have_asked",
                   [](Engine& self) { return self.publisher().feed().feed().all_have_asked(); })
      .def(
          "set_patience",
          [](Engine& self, uint32_t ms) {
            self.publisher().set_patience(std::chrono::milliseconds(ms));
          },
          nb::arg("ms"))
      .def("find_records", &find_records, nb::arg("digests"), nb::arg("timeout_ms"))
      .def("ask_owner", &ask_owner, nb::arg("owner"), nb::arg("digests"), nb::arg("timeout_ms"));
}

}  // namespace peercached
