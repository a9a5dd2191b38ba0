// Parts of the engine on their own, for the placement, the simulator and the benchmark.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/packed.h"
#include "directory/record_table.h"
#include "engine/records/nodes.h"

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

nb::tuple shard_apply(Shard& shard, HolderIndex holder, const nb::bytes& packed) {
  const InPlace<RecordRow> rows(packed, "rows");
  const ShardApplied applied = unlocked([&] { return shard.apply(holder, rows); });
  return nb::make_tuple(applied.added, applied.changed, applied.withdrawn, applied.old,
                        applied.full);
}

nb::bytes shard_lookup(const Shard& shard, const nb::bytes& packed) {
  const InPlace<Digest> digests(packed, "digests");
  std::vector<RecordRow> rows;
  unlocked([&] { shard.lookup(digests, rows); });
  return pack(rows);
}

// The caller's clock, in seconds.
TimePoint time_point(double now) {
  return TimePoint(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(now)));
}
double seconds_of(TimePoint at) {
  return std::chrono::duration<double>(at.time_since_epoch()).count();
}

// A part of an answer, or a push: (rows, from, to, anew, more, view of the lease).
nb::tuple part_tuple(const FeedPart& part, const std::vector<RecordRow>& rows) {
  return nb::make_tuple(pack(rows), part.from, part.to, part.anew, part.more, part.lease_view);
}

FeedQuestion question_of(const nb::tuple& question) {
  return {nb::cast<uint64_t>(question[0]), nb::cast<uint64_t>(question[1]),
          nb::cast<uint64_t>(question[2]), nb::cast<uint64_t>(question[3]),
          nb::cast<uint64_t>(question[4])};
}

// Of a function that tells whether a digest is stored; None: all are.
Feed::Wanted wanted_of(const nb::object& wanted) {
  if (wanted.is_none()) return nullptr;
  return [wanted](const Digest& digest) {
    const auto* bytes = reinterpret_cast<const char*>(&digest);
    return nb::cast<bool>(wanted(nb::bytes(bytes, sizeof digest)));
  };
}

nb::object feed_answer(Feed& feed, Incarnation follower, const nb::tuple& question, double now,
                       const nb::object& wanted) {
  std::vector<RecordRow> changes;
  const auto part =
      feed.answer(follower, question_of(question), time_point(now), changes, wanted_of(wanted));
  if (!part) return nb::none();
  return part_tuple(*part, changes);
}

nb::object feed_push(const Feed& feed, Incarnation follower, size_t changes_max,
                     const nb::object& wanted) {
  std::vector<RecordRow> changes;
  const auto part = feed.push(follower, changes_max, changes, wanted_of(wanted));
  if (!part) return nb::none();
  return part_tuple(*part, changes);
}

nb::list feed_behind(const Feed& feed, uint64_t position, double now, bool of_earlier_view) {
  nb::list list;
  for (const auto& one : feed.behind(position, time_point(now), of_earlier_view))
    list.append(nb::make_tuple(one.follower, seconds_of(one.until)));
  return list;
}

// A part as part_tuple() makes it.
template <typename Take>
auto with_part(const nb::tuple& packed, const Take& take) {
  const InPlace<RecordRow> rows(nb::cast<nb::bytes>(packed[0]), "rows");
  return take(FeedPart{rows, nb::cast<uint64_t>(packed[1]), nb::cast<uint64_t>(packed[2]),
                       nb::cast<bool>(packed[3]), nb::cast<bool>(packed[4]),
                       nb::cast<uint64_t>(packed[5])});
}

void bind_feed(nb::module_& module) {
  nb::class_<Feed>(module, "Feed")
      .def(nb::init<size_t>(), nb::arg("changes_max"))
      .def(
          "append",
          [](Feed& self, const nb::bytes& rows) { self.append(InPlace<RecordRow>(rows, "rows")); },
          nb::arg("rows"))
      .def("forget", &Feed::forget)
      .def(
          "set_view",
          [](Feed& self, uint64_t number, const std::vector<Incarnation>& members, double now) {
            self.set_view(number, members, time_point(now));
          },
          nb::arg("number"), nb::arg("members"), nb::arg("now"))
      .def_prop_ro("end", &Feed::end)
      .def_prop_ro("all_have_asked", &Feed::all_have_asked)
      .def(
          "asked",
          [](Feed& self, Incarnation follower, const nb::tuple& question) {
            return self.asked(follower, question_of(question));
          },
          nb::arg("follower"), nb::arg("question"))
      .def(
          "has_news",
          [](const Feed& self, Incarnation follower, const nb::tuple& question, uint64_t told) {
            return self.has_news(follower, question_of(question), told);
          },
          nb::arg("follower"), nb::arg("question"), nb::arg("told"))
      .def("answer", &feed_answer, nb::arg("follower"), nb::arg("question"), nb::arg("now"),
           nb::arg("wanted") = nb::none())
      .def("push", &feed_push, nb::arg("follower"), nb::arg("changes_max"),
           nb::arg("wanted") = nb::none())
      .def("ring_of", &Feed::ring_of, nb::arg("follower"))
      .def("stands", &Feed::stands, nb::arg("follower"), nb::arg("position"))
      .def("stands_at", &Feed::stands_at, nb::arg("follower"), nb::arg("position"))
      .def("behind", &feed_behind, nb::arg("position"), nb::arg("now"),
           nb::arg("of_earlier_view") = false)
      .def(
          "last_of",
          [](const Feed& self, const nb::bytes& digests, double now) {
            return self.last_of(InPlace<Digest>(digests, "digests"), time_point(now));
          },
          nb::arg("digests"), nb::arg("now"));
}

void bind_record_table(nb::module_& module) {
  nb::class_<RecordTable>(module, "RecordTable")
      .def(
          "__init__",
          [](RecordTable* self, uint64_t records_max, nb::callable clock) {
            const auto now = [clock] { return time_point(nb::cast<double>(clock())); };
            new (self) RecordTable(records_max, {}, now);
          },
          nb::arg("records_max"), nb::arg("clock"))
      .def(
          "ask",
          [](RecordTable& self, HolderIndex holder, double now) {
            const FeedQuestion question = self.ask(holder, time_point(now));
            return nb::make_tuple(question.number, question.position, question.lease_view,
                                  question.ring, question.scans);
          },
          nb::arg("holder"), nb::arg("now"))
      .def(
          "take",
          [](RecordTable& self, HolderIndex holder, const nb::tuple& part) {
            return with_part(part, [&](const FeedPart& taken) {
              return self.take(holder, taken) == RecordTable::Taken::ok;
            });
          },
          nb::arg("holder"), nb::arg("part"))
      .def(
          "push",
          [](RecordTable& self, HolderIndex holder, const nb::tuple& part) {
            return with_part(part, [&](const FeedPart& taken) { return self.push(holder, taken); });
          },
          nb::arg("holder"), nb::arg("part"))
      .def("is_lost", &RecordTable::is_lost, nb::arg("holder"))
      .def("forget", &RecordTable::forget, nb::arg("holder"))
      .def(
          "store_only",
          [](RecordTable& self, const nb::object& wanted, uint64_t ring) {
            self.store_only(wanted_of(wanted), ring);
          },
          nb::arg("wanted"), nb::arg("ring"))
      .def(
          "set_view",
          [](RecordTable& self, uint64_t number, const std::vector<HolderIndex>& members) {
            self.set_view(number, members);
          },
          nb::arg("number"), nb::arg("members"))
      .def(
          "find",
          [](const RecordTable& self, const nb::bytes& digests) {
            std::vector<RecordRow> rows;
            const uint64_t view = self.find(InPlace<Digest>(digests, "digests"), rows);
            return nb::make_tuple(pack(rows), view);
          },
          nb::arg("digests"))
      .def(
          "find_all",
          [](const RecordTable& self, const nb::bytes& digests) {
            std::vector<RecordRow> rows;
            self.find_all(InPlace<Digest>(digests, "digests"), rows);
            return pack(rows);
          },
          nb::arg("digests"))
      .def("holders", &RecordTable::holders)
      .def("sweep", &RecordTable::sweep, nb::arg("records"))
      .def_prop_ro("records", [](const RecordTable& self) { return self.stats().records; });
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
      .def("shares", &shares_list, nb::arg("owners") = 1);

  nb::class_<NodeTable>(module, "NodeTable")
      .def(nb::init<std::string, Incarnation>(), nb::arg("self_id"), nb::arg("self_incarnation"))
      .def("add", &NodeTable::add, nb::arg("node_id"), nb::arg("incarnation"))
      .def("drop", &NodeTable::drop, nb::arg("index"));

  bind_feed(module);
  bind_record_table(module);
}

}  // namespace peercached
