// The operator's commands: evict, trace.

#include <nanobind/stl/string.h>

#include <chrono>

#include "bindings/packed.h"
#include "engine/engine.h"
#include "engine/observe/traces.h"

namespace peercached {

namespace {

nb::tuple evict(Engine& engine, const nb::bytes& packed) {
  const InPlace<Digest> digests(packed, "digests");
  const Evicted evicted = unlocked([&] { return engine.storage().pool().evict(digests); });
  return nb::make_tuple(evicted.pages, evicted.bytes);
}

nb::tuple evict_coldest(Engine& engine, uint64_t bytes) {
  const Evicted evicted = unlocked([&] { return engine.storage().pool().evict_coldest(bytes); });
  return nb::make_tuple(evicted.pages, evicted.bytes);
}

// On the clock of Python's time.monotonic().
double seconds(TimePoint at) {
  return std::chrono::duration<double>(at.time_since_epoch()).count();
}

nb::tuple traced_get(Engine& engine, const std::string& name, const nb::bytes& key, uint32_t length,
                     uint32_t timeout_ms) {
  if (key.size() == 0 || key.size() > kKeyBytesMax || length == 0 || length > kPageBytesMax) {
    throw std::invalid_argument("a key of " + std::to_string(key.size()) + " bytes, a page of " +
                                std::to_string(length) + ": there is no such page");
  }
  const std::string_view key_bytes(key.c_str(), key.size());
  const TracedGet traced = unlocked([&] {
    return trace_get(engine, engine.transports(), name, key_bytes, length,
                     Deadline::after_ms(timeout_ms));
  });
  nb::list steps;
  for (const Trace::Step& step : traced.steps) {
    steps.append(nb::make_tuple(step.name, seconds(step.begin), seconds(step.end), step.holder,
                                static_cast<int>(step.status)));
  }
  return nb::make_tuple(static_cast<int>(traced.status), seconds(traced.begin), seconds(traced.end),
                        steps);
}

}  // namespace

void bind_operator(nb::class_<Engine>& engine) {
  engine.def("evict", &evict, nb::arg("digests"))
      .def("evict_coldest", &evict_coldest, nb::arg("bytes"))
      .def("trace_get", &traced_get, nb::arg("namespace"), nb::arg("key"), nb::arg("length"),
           nb::arg("timeout_ms"));
}

}  // namespace peercached
