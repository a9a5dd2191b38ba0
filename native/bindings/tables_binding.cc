// Parts of the engine on their own, for the placement, the simulator and the benchmark.

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "bindings/shard_calls.h"
#include "engine/nodes.h"

namespace peercached {

namespace {

nb::dict shard_stats(const Shard& shard) {
  const ShardStats stats = shard.stats();
  nb::dict out;
  out["entries"] = stats.entries;
  out["bytes"] = stats.bytes;
  out["dead_entries"] = stats.dead_entries;
  out["capacity_entries"] = stats.capacity_entries;
  out["full"] = stats.full;
  return out;
}

}  // namespace

void bind_tables(nb::module_& module) {
  nb::class_<Shard>(module, "ShardTable")
      .def(nb::init<uint64_t>(), nb::arg("capacity_entries"))
      .def("add_holder", &Shard::add_holder, nb::arg("holder"))
      .def("drop_holder", &Shard::drop_holder, nb::arg("holder"))
      .def("swept", &Shard::swept, nb::arg("holder"))
      .def("apply", &shard_apply, nb::arg("holder"), nb::arg("rows"))
      .def("lookup", &shard_lookup, nb::arg("digests"))
      .def("summary", &shard_summary, nb::arg("holder"), nb::arg("ring"), nb::arg("owner"))
      .def("replace", &shard_replace, nb::arg("holder"), nb::arg("bucket"), nb::arg("as_of"),
           nb::arg("rows"), nb::arg("ring"), nb::arg("owner"))
      .def("trim", &shard_trim, nb::arg("ring"), nb::arg("owner"))
      .def("sweep", &Shard::sweep, nb::arg("records"))
      .def("stats", &shard_stats);

  nb::class_<Ring>(module, "RingTable")
      .def(
          "__init__",
          [](Ring* self, const nb::bytes& positions, const nb::bytes& nodes, unsigned replicas) {
            new (self) Ring(make_ring(positions, nodes, replicas));
          },
          nb::arg("positions"), nb::arg("nodes"), nb::arg("replicas"))
      .def("owners", &owners_list, nb::arg("digest"))
      .def("split", &split_list, nb::arg("items"), nb::arg("stride"), nb::arg("first_only") = false)
      .def("shares", &shares_list, nb::arg("owners") = 1)
      .def(
          "summaries",
          [](const Ring& self, const nb::bytes& packed) {
            OwnerSummaries by_owner;
            add_to_summaries(by_owner, InPlace<RecordRow>(packed, "rows"), self);
            return summaries_dict(by_owner);
          },
          nb::arg("rows"))
      .def(
          "rows_of",
          [](const Ring& self, const nb::bytes& packed, HolderIndex owner, const nb::bytes& mask) {
            std::vector<RecordRow> owned;
            append_owned(owned, InPlace<RecordRow>(packed, "rows"), self, owner, bucket_mask(mask));
            return pack(owned);
          },
          nb::arg("rows"), nb::arg("owner"), nb::arg("buckets"));

  nb::class_<NodeTable>(module, "NodeTable")
      .def(nb::init<std::string, Incarnation>(), nb::arg("self_id"), nb::arg("self_incarnation"))
      .def(
          "add",
          [](NodeTable& self, const std::string& node_id, Incarnation incarnation,
             const Shard& shard) {
            return self.add(node_id, incarnation,
                            [&](HolderIndex candidate) { return shard.swept(candidate); });
          },
          nb::arg("node_id"), nb::arg("incarnation"), nb::arg("shard"))
      .def("drop", &NodeTable::drop, nb::arg("index"));
}

}  // namespace peercached
