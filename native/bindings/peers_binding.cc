// The other nodes, which the engine reads and serves: addresses, tokens, channels, suspicion,
// signs of life.

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <limits>

#include "bindings/calls.h"

namespace peercached {

namespace {

constexpr size_t kTokenBytes = 32;

std::string token_of(const nb::bytes& packed) {
  if (packed.size() != kTokenBytes) {
    throw std::invalid_argument("token: 32 bytes are wanted, not " + std::to_string(packed.size()));
  }
  return {packed.c_str(), packed.size()};
}

void connect_node(Engine& engine, HolderIndex index, const std::string& host, uint16_t port,
                  const nb::bytes& token, Incarnation incarnation, const nb::dict& offers,
                  bool sealed) {
  PeerEndpoint endpoint{host, port, token_of(token), incarnation, {}, sealed};
  for (const auto& [name, bytes] : offers) {
    const auto offer = nb::cast<nb::bytes>(bytes);
    endpoint.transports[nb::cast<std::string>(name)] = {offer.c_str(), offer.size()};
  }
  unlocked([&] { engine.peers().connect(index, endpoint); });
}

void admit_reader(Engine& engine, const std::string& node_id, Incarnation incarnation,
                  const nb::bytes& token) {
  engine.readers().admit(node_id, incarnation, token_of(token));
}

std::vector<bool> prove_paths(Engine& engine, const std::vector<HolderIndex>& indices,
                              double timeout_s) {
  return engine.peers().prove_paths(indices,
                                    Deadline::after_ms(static_cast<int64_t>(timeout_s * 1000)));
}

void set_life_sign(Engine& engine, uint64_t view_number, uint64_t sequence, bool is_master,
                   double for_s) {
  engine.peers().set_life_sign(view_number, sequence, is_master,
                               std::chrono::milliseconds(static_cast<int64_t>(for_s * 1000)));
}

nb::list take_life_signs(Engine& engine) {
  const TimePoint now = Clock::now();
  const auto ago_s = [&](TimePoint at) {
    return at == TimePoint::min() ? std::numeric_limits<double>::infinity()
                                  : std::chrono::duration<double>(now - at).count();
  };
  nb::list signs;
  for (const auto& heard : engine.peers().signs().take()) {
    const tcp::LifeSign& sign = heard.sign;
    signs.append(nb::make_tuple(heard.who, sign.view_number, sign.sequence, sign.epochs_mark,
                                sign.is_master == 1, ago_s(heard.at), ago_s(heard.answered)));
  }
  return signs;
}

}  // namespace

void bind_peers(nb::class_<Engine>& engine) {
  engine
      .def("add_node", call(&Engine::peers, &Peers::add), nb::arg("node_id"),
           nb::arg("incarnation"))
      .def("drop_node", call(&Engine::peers, &Peers::drop), nb::arg("index"))
      .def("disconnect_node", call(&Engine::peers, &Peers::disconnect), nb::arg("index"))
      .def("connect_node", &connect_node, nb::arg("index"), nb::arg("host"), nb::arg("port"),
           nb::arg("token"), nb::arg("incarnation"), nb::arg("offers"), nb::arg("sealed"))
      .def("channel_connected", call(&Engine::transports, &Transports::channel_connected),
           nb::arg("connect_id"), nb::arg("answer"))
      .def("channel_refused", call(&Engine::transports, &Transports::channel_refused),
           nb::arg("connect_id"), nb::arg("why"))
      .def("accept_channel", call(&Engine::transports, &Transports::accept_channel),
           nb::arg("node_id"), nb::arg("incarnation"), nb::arg("offer"), nb::arg("closed"))
      .def("suspect_node", call(&Engine::nodes, &NodeTable::set_suspect), nb::arg("index"),
           nb::arg("suspect"))
      .def("prove_paths", &prove_paths, nb::call_guard<nb::gil_scoped_release>(),
           nb::arg("indices"), nb::arg("timeout_s"))
      .def("set_owes", call(&Engine::nodes, &NodeTable::set_owes), nb::arg("index"),
           nb::arg("owes"))
      .def("admit_reader", &admit_reader, nb::arg("node_id"), nb::arg("incarnation"),
           nb::arg("token"))
      .def("expel_reader", call(&Engine::readers, &Readers::expel), nb::arg("node_id"),
           nb::arg("incarnation"))
      .def("set_life_sign", &set_life_sign, nb::arg("view_number"), nb::arg("sequence"),
           nb::arg("is_master"), nb::arg("for_s"))
      .def("take_life_signs", &take_life_signs);
}

}  // namespace peercached
