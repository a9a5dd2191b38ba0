// Events for Python. An event is a tuple: its name, its ticket, the seconds left, and the fields of
// its payload. peercached/events.py has a handler for each name, with these parameters.

#include <nanobind/stl/string.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <optional>
#include <utility>

#include "bindings/calls.h"
#include "engine/control/events.h"

namespace peercached {

namespace {

using Bytes = std::span<const std::byte>;

template <typename Head>
Head take_head(Bytes& payload) {
  assert(payload.size() >= sizeof(Head));
  Head head;
  std::memcpy(&head, payload.data(), sizeof head);
  payload = payload.subspan(sizeof head);
  return head;
}

// Texts stay bytes: an error while decoding one would lose all events that were taken with it.
nb::tuple tuple_of(const Event& event, TimePoint now) {
  const double left_s =
      event.ticket == 0
          ? 0.0
          : std::max(0.0, std::chrono::duration<double>(event.deadline - now).count());
  const auto made = [&](const char* name, auto&&... fields) {
    return nb::make_tuple(nb::steal(PyUnicode_InternFromString(name)), event.ticket, left_s,
                          std::forward<decltype(fields)>(fields)...);
  };
  Bytes rest = event.payload;
  switch (event.kind) {
    case EventKind::remove: {
      const auto asked = take_head<RemovalQuestion>(rest);
      return made("remove", pack(asked.namespace_id), asked.epoch, pack(rest));
    }
    case EventKind::clear: {
      const auto user = take_head<uint32_t>(rest);
      return made("clear", user, pack(rest));
    }
    case EventKind::peer_trouble: {
      const auto trouble = take_head<PeerTrouble>(rest);
      return made("peer_trouble", trouble.holder, trouble.incarnation, trouble.token_unknown,
                  pack(rest));
    }
    case EventKind::connect_channel: {
      const auto wish = take_head<ChannelQuestion>(rest);
      return made("connect_channel", wish.holder, wish.connect_id, pack(rest.first(wish.end_bytes)),
                  pack(rest.subspan(wish.end_bytes)));
    }
    case EventKind::promote: {
      const auto asked = take_head<PromoteQuestion>(rest);
      return made("promote", asked.holder, pack(rest));
    }
    case EventKind::pin: {
      const auto asked = take_head<PinQuestion>(rest);
      return made("pin", pack(asked.namespace_id), asked.epoch, asked.for_ms, asked.prefix,
                  asked.here, pack(rest));
    }
    case EventKind::hint: {
      const auto asked = take_head<HintQuestion>(rest);
      const size_t names = asked.namespace_bytes, digests = asked.digests * sizeof(Digest);
      return made("hint", pack(rest.first(names)), pack(rest.subspan(names, digests)),
                  pack(rest.subspan(names + digests)));
    }
    case EventKind::follower_moved:
      return made("follower_moved");
    case EventKind::fetch:
      return made("fetch", pack(rest));
  }
  throw std::logic_error("an event of no kind");
}

nb::list take_events(Engine& engine, size_t limit) {
  const std::vector<Event> events = unlocked([&] { return engine.control().take(limit); });
  const TimePoint now = Clock::now();
  nb::list list;
  for (const Event& event : events) list.append(tuple_of(event, now));
  return list;
}

void answer(Engine& engine, uint64_t ticket, const nb::bytes& payload) {
  auto bytes = unpack<std::byte>(payload, "payload");
  unlocked([&] { engine.control().answer(ticket, std::move(bytes)); });
}

void answer_removal(Engine& engine, uint64_t ticket, uint32_t status, const nb::bytes& were_here,
                    const std::string& text) {
  const InPlace<Digest> digests(were_here, "were_here");
  const std::span<const Digest> rows = digests;
  const RemovalAnswer head{status, static_cast<uint32_t>(rows.size())};
  unlocked([&] { engine.control().answer(ticket, payload_of(head, rows, text)); });
}

// nullopt: there is no such kind.
std::optional<std::vector<std::byte>> sample_payload(EventKind kind) {
  const Digest digest{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  const uint32_t text = 0x74786574;  // "text"
  switch (kind) {
    case EventKind::remove:
      return payload_of(RemovalQuestion{digest, 5}, digest, digest);
    case EventKind::clear:
      return payload_of(uint32_t{1000}, text);
    case EventKind::peer_trouble:
      return payload_of(PeerTrouble{9, 7, true}, text);
    case EventKind::follower_moved:
      return std::vector<std::byte>{};
    case EventKind::fetch:
      return payload_of(digest, digest);
    case EventKind::connect_channel:
      return payload_of(ChannelQuestion{7, {}, sizeof digest, 3}, digest, uint32_t{1});
    case EventKind::promote:
      return payload_of(PromoteQuestion{7}, digest);
    case EventKind::hint:
      return payload_of(HintQuestion{sizeof text, 1}, text, digest, text);
    case EventKind::pin:
      return payload_of(PinQuestion{digest, 5, 60'000, true, true}, digest, digest);
  }
  return std::nullopt;
}

// One event of each kind, as take_events() gives it: to test the handlers. Two seconds are left.
nb::list sample_events() {
  const TimePoint now = Clock::now();
  nb::list list;
  for (unsigned number = 0; number < 256; ++number) {
    const auto kind = static_cast<EventKind>(number);
    if (auto payload = sample_payload(kind)) {
      list.append(tuple_of({kind, 1, now + std::chrono::seconds(2), std::move(*payload)}, now));
    }
  }
  return list;
}

}  // namespace

void bind_events(nb::module_& module, nb::class_<Engine>& engine) {
  engine.def_prop_ro("event_fd", [](Engine& self) { return self.control().event_fd(); })
      .def("take_events", &take_events, nb::arg("limit"))
      .def("answer", &answer, nb::arg("ticket"), nb::arg("payload"))
      .def("answer_removal", &answer_removal, nb::arg("ticket"), nb::arg("status"),
           nb::arg("were_here"), nb::arg("text"))
      .def("give_up", call(&Engine::control, &ControlQueue::give_up), nb::arg("ticket"));
  module.def("sample_events", &sample_events);
}

}  // namespace peercached
