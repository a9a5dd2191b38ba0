// The engine's ring and its shard of the directory.

#include "bindings/calls.h"
#include "bindings/shard_calls.h"

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
template <typename Result, typename... Arguments>
auto on_shard(Result (*function)(Shard&, Arguments...)) {
  return [function](Engine& engine, Arguments... given) {
    return function(engine.directory().shard(), given...);
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

nb::list copied(Engine& engine) {
  nb::list list;
  if (engine.copies() == nullptr) return list;
  for (const HolderIndex holder : engine.copies()->holders()) list.append(holder);
  return list;
}

}  // namespace

void bind_directory(nb::class_<Engine>& engine) {
  engine
      .def(
          "set_ring",
          [](Engine& self, const nb::bytes& positions, const nb::bytes& nodes, unsigned replicas,
             uint64_t view_number) {
            self.directory().set_ring(
                std::make_shared<const Ring>(make_ring(positions, nodes, replicas, view_number)));
          },
          nb::arg("positions"), nb::arg("nodes"), nb::arg("replicas"), nb::arg("view_number"))
      .def("set_shard_final", call(finality_of, &Finality::set), nb::arg("final"),
           nb::arg("view_number"))
      .def(
          "open_owner",
          [](Engine& self, HolderIndex index, bool is_open) {
            self.nodes().open_owner(index, is_open);
          },
          nb::arg("index"), nb::arg("is_open"))
      .def_prop_ro("fence", [](Engine& self) { return self.publisher().fence(); })
      .def("raise_fence", call(&Engine::directory, &Directory::raise_fence), nb::arg("holder"),
           nb::arg("fence"))
      .def(
          "keep_final",
          [](Engine& self, uint32_t ms) {
            self.directory().finality().keep(Deadline::after_ms(ms).at);
          },
          nb::arg("ms"))
      .def("split", on_ring(&split_list), nb::arg("items"), nb::arg("stride"),
           nb::arg("first_only") = false)
      .def("owners", on_ring(&owners_list), nb::arg("digest"))
      .def("ring_shares", on_ring(&shares_list), nb::arg("owners") = 1)

      .def("prefixes", &prefixes, nb::arg("digests"), nb::arg("rows"))
      .def("copied", &copied)
      .def("shard_apply", on_shard(&shard_apply), nb::arg("holder"), nb::arg("rows"))
      .def("shard_lookup", on_shard(&shard_lookup), nb::arg("digests"))
      .def(
          "shard_summary",
          [](Engine& self, HolderIndex holder) {
            return shard_summary(self.directory().shard(), holder, *ring_of(self), kSelfHolder);
          },
          nb::arg("holder"))
      .def(
          "shard_replace",
          [](Engine& self, HolderIndex holder, unsigned bucket, Generation as_of,
             const nb::bytes& rows) {
            return shard_replace(self.directory().shard(), holder, bucket, as_of, rows,
                                 *ring_of(self), kSelfHolder);
          },
          nb::arg("holder"), nb::arg("bucket"), nb::arg("as_of"), nb::arg("rows"))
      .def("shard_trim", [](Engine& self) {
        return shard_trim(self.directory().shard(), *ring_of(self), kSelfHolder);
      });
}

}  // namespace peercached
