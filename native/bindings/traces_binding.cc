// Traced gets of workers, for the exporter.

#include <nanobind/stl/string.h>

#include <chrono>

#include "bindings/packed.h"
#include "engine/engine.h"

namespace peercached {

namespace {

// On the clock of Python's time.monotonic_ns().
int64_t nanoseconds(TimePoint at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

template <size_t N>
nb::bytes bytes_of(const std::array<uint8_t, N>& number) {
  return nb::bytes(number.data(), number.size());
}

nb::list take_traced_calls(Engine& engine) {
  const std::vector<TracedCall> calls = engine.call_traces().take();
  nb::list list;
  for (const TracedCall& call : calls) {
    nb::list steps;
    for (const Trace::Step& step : call.trace.steps) {
      steps.append(nb::make_tuple(step.name, nanoseconds(step.begin), nanoseconds(step.end),
                                  step.holder, static_cast<int>(step.status), step.pages,
                                  step.found));
    }
    list.append(nb::make_tuple(bytes_of(call.caller.trace_id), bytes_of(call.caller.span_id),
                               call.ns, nanoseconds(call.begin), nanoseconds(call.end), call.pages,
                               call.ok, call.bytes, steps, call.trace.left_out));
  }
  return list;
}

}  // namespace

void bind_traces(nb::class_<Engine>& engine) {
  engine
      .def(
          "trace_calls", [](Engine& self, bool on) { self.call_traces().set_on(on); },
          nb::arg("on"))
      .def("take_traced_calls", &take_traced_calls)
      .def_prop_ro("traced_calls_dropped",
                   [](Engine& self) { return self.call_traces().dropped(); });
}

}  // namespace peercached
