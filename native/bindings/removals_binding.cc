// Removals: dropping pages, the journal, and the begin and end of serving.

#include <nanobind/stl/optional.h>

#include <chrono>

#include "bindings/calls.h"

namespace peercached {

namespace {

nb::tuple begin_removal(Engine& engine, const nb::bytes& packed, uint64_t removal) {
  const InPlace<Digest> digests(packed, "digests");
  std::vector<RecordRow> rows;
  const auto begun = unlocked([&] { return engine.removals().begin(digests, removal, rows); });
  if (begun == Removals::Begun::too_many) {
    throw std::overflow_error("too many removals are under way");
  }
  return nb::make_tuple(pack(rows), begun == Removals::Begun::in_journal);
}

nb::tuple remove_local(Engine& engine, const nb::bytes& packed) {
  const InPlace<Removed> removed(packed, "removed");
  std::vector<RecordRow> rows;
  const bool kept = unlocked([&] { return engine.removals().remove(removed, rows); });
  return nb::make_tuple(pack(rows), kept);
}

uint64_t tell_followers(Engine& engine, const nb::bytes& packed) {
  const InPlace<Digest> digests(packed, "digests");
  return unlocked([&] { return engine.publisher().feed().tell_now(digests); });
}

// [(incarnation, seconds until its lease ends)]
nb::list followers_behind(Engine& engine, uint64_t position) {
  const auto behind = unlocked([&] { return engine.publisher().feed().behind(position); });
  const TimePoint now = Clock::now();
  nb::list list;
  for (const Feed::Behind& one : behind) {
    const double left_s = std::chrono::duration<double>(one.until - now).count();
    list.append(nb::make_tuple(one.follower, left_s));
  }
  return list;
}

std::optional<nb::bytes> removals_since(Engine& engine, Position position) {
  const auto removed = unlocked([&] { return engine.storage().journal().since(position); });
  if (!removed) return std::nullopt;
  return pack(*removed);
}

nb::bytes unknown_removals(Engine& engine, const nb::bytes& packed) {
  const InPlace<Removed> removed(packed, "removed");
  return pack(unlocked([&] { return engine.storage().journal().unknown(removed); }));
}

}  // namespace

void bind_removals(nb::class_<Engine>& engine) {
  using Unlocked = nb::call_guard<nb::gil_scoped_release>;
  engine.def("begin_removal", &begin_removal, nb::arg("digests"), nb::arg("removal"))
      .def("end_removal", call(&Engine::removals, &Removals::end), nb::arg("digests"))
      .def("remove_local", &remove_local, nb::arg("removed"))
      .def("tell_followers", &tell_followers, nb::arg("digests"))
      .def("followers_behind", &followers_behind, nb::arg("position"))
      .def("removals_since", &removals_since, nb::arg("position"))
      .def("unknown_removals", &unknown_removals, nb::arg("removed"))
      .def_prop_ro("removals_last", [](Engine& self) { return self.storage().journal().last(); })
      .def_prop_ro("state_is_old", [](Engine& self) { return self.storage().state_is_old(); })
      .def("drop_all", call(&Engine::removals, &Removals::drop_all))
      .def("hide_older", call(&Engine::removals, &Removals::hide_older))
      .def("show_older", call(&Engine::removals, &Removals::show_older))
      .def("begin_serving", &Engine::begin_serving)
      .def("set_paused", &Engine::set_paused, Unlocked(), nb::arg("paused"))
      .def("end_serving", &Engine::end_serving, Unlocked());
}

}  // namespace peercached
