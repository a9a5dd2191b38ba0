// Bindings of methods of the engine's parts:
//
//   .def("warm", call(&Engine::local_pages, &LocalPages::warm), nb::arg("digests"))
//
// In Python, rows are packed bytes and deadlines are milliseconds from now. Other Python threads
// run meanwhile.
#pragma once

#include <functional>
#include <type_traits>

#include "bindings/packed.h"
#include "engine/engine.h"

namespace peercached {

// An argument as it comes from Python, and as the method takes it.
template <typename Argument>
struct Taken {
  using Python = Argument;
  static Argument of(Argument given) { return given; }
};
template <typename Row>
struct Taken<std::span<const Row>> {
  using Python = const nb::bytes&;
  static InPlace<Row> of(const nb::bytes& packed) {
    constexpr bool kRows = std::is_same_v<Row, RecordRow>;
    return {packed, std::is_same_v<Row, Digest> ? "digests" : kRows ? "rows" : "numbers"};
  }
};
template <>
struct Taken<const Digest&> {
  using Python = const nb::bytes&;
  static Digest of(const nb::bytes& packed) { return unpack_digest(packed); }
};
template <>
struct Taken<Deadline> {
  using Python = uint32_t;
  static Deadline of(uint32_t ms) { return Deadline::after_ms(ms); }
};

template <typename Result, typename... Arguments, typename GetPart, typename Method>
auto call_as(GetPart part, Method method) {
  return [part, method](Engine& engine, typename Taken<Arguments>::Python... given) {
    const auto run = [&](const auto&... taken) -> Result {
      return unlocked([&] { return (std::invoke(part, engine).*method)(taken...); });
    };
    if constexpr (requires(Result result) { pack(result); })
      return pack(run(Taken<Arguments>::of(given)...));
    else
      return run(Taken<Arguments>::of(given)...);
  };
}

template <typename GetPart, typename Part, typename Result, typename... Arguments>
auto call(GetPart part, Result (Part::*method)(Arguments...)) {
  return call_as<Result, Arguments...>(part, method);
}
template <typename GetPart, typename Part, typename Result, typename... Arguments>
auto call(GetPart part, Result (Part::*method)(Arguments...) const) {
  return call_as<Result, Arguments...>(part, method);
}

// Parts of parts.
inline Pool& pool_of(Engine& engine) { return engine.storage().pool(); }
inline DiskPages& disk_of(Engine& engine) { return engine.storage().disk(); }
inline NamespaceTable& namespaces_of(Engine& engine) { return engine.storage().namespaces(); }

}  // namespace peercached
