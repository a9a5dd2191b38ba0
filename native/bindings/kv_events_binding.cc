// Events of pages: batches to send, and the names of pages. Raises RuntimeError if kv_events_port
// is 0.

#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/calls.h"
#include "engine/observe/page_events.h"

namespace peercached {

namespace {

PageEvents& events_of(Engine& engine) {
  PageEvents* events = engine.page_events();
  if (events == nullptr) throw std::runtime_error("no events are told: kv_events_port is 0");
  return *events;
}

// [(topic, payload, events)]
nb::list batch_list(const std::vector<kv_events::Batch>& batches) {
  nb::list list;
  for (const kv_events::Batch& batch : batches) {
    list.append(nb::make_tuple(nb::bytes(batch.topic.data(), batch.topic.size()),
                               nb::bytes(batch.payload.data(), batch.payload.size()),
                               batch.events));
  }
  return list;
}

// (batches, whether there is more)
nb::tuple kv_drain(Engine& engine, uint64_t bytes_max) {
  PageEvents& events = events_of(engine);
  const auto drained = unlocked([&] { return events.drain(bytes_max); });
  return nb::make_tuple(batch_list(drained.batches), drained.more);
}

nb::list kv_snapshot(Engine& engine) {
  PageEvents& events = events_of(engine);
  return batch_list(unlocked([&] { return events.snapshot(); }));
}

// [(holder, digests)]
nb::list kv_questions(Engine& engine) {
  PageEvents& events = events_of(engine);
  nb::list list;
  for (const auto& one : unlocked([&] { return events.picture().questions(); }))
    list.append(nb::make_tuple(one.holder, pack(one.digests)));
  return list;
}

void kv_answered(Engine& engine, HolderIndex holder, const nb::bytes& digests,
                 const nb::bytes& names) {
  PageEvents& events = events_of(engine);
  const InPlace<Digest> asked(digests, "digests");
  const InPlace<std::byte> answer(names, "names");
  unlocked([&] { events.picture().answered(holder, asked, answer); });
}

void kv_unanswered(Engine& engine, HolderIndex holder, const nb::bytes& digests) {
  PageEvents& events = events_of(engine);
  const InPlace<Digest> asked(digests, "digests");
  unlocked([&] { events.picture().unanswered(holder, asked); });
}

nb::bytes kv_names(Engine& engine, const nb::bytes& packed) {
  PageEvents& events = events_of(engine);
  const InPlace<Digest> digests(packed, "digests");
  return pack(unlocked([&] { return events.picture().names_of(digests); }));
}

nb::dict kv_stats(Engine& engine) {
  PageEvents& events = events_of(engine);
  const auto stats = unlocked([&] { return events.picture().stats(); });
  nb::dict told;
  told["pages"] = stats.pages;
  told["told"] = stats.told;
  told["stored"] = stats.stored;
  told["removed"] = stats.removed;
  told["cleared"] = stats.cleared;
  told["by_digest"] = stats.by_digest;
  told["names_asked"] = stats.names_asked;
  told["unnamed"] = stats.unnamed;
  told["tells_all"] = events.tells_all();
  return told;
}

}  // namespace

void bind_kv_events(nb::class_<Engine>& engine) {
  engine.def("kv_drain", &kv_drain, nb::arg("bytes_max"))
      .def("kv_snapshot", &kv_snapshot)
      .def("kv_questions", &kv_questions)
      .def("kv_answered", &kv_answered, nb::arg("holder"), nb::arg("digests"), nb::arg("names"))
      .def("kv_unanswered", &kv_unanswered, nb::arg("holder"), nb::arg("digests"))
      .def("kv_names", &kv_names, nb::arg("digests"))
      .def("kv_stats", &kv_stats);
}

}  // namespace peercached
