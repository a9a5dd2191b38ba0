// Hints about pages of this node (engine/storage/hinted_pages.h).

#include <nanobind/stl/string.h>

#include "bindings/calls.h"

namespace peercached {

namespace {

nb::tuple retain(Engine& engine, const nb::bytes& namespace_id, uint64_t epoch,
                 const nb::bytes& packed, uint32_t for_ms, uint64_t bytes_max,
                 uint64_t namespace_bytes_max) {
  const InPlace<Digest> digests(packed, "digests");
  const Digest id = unpack_digest(namespace_id);
  std::vector<PageStatus> statuses(std::span<const Digest>(digests).size());
  const std::string why = unlocked([&] {
    return engine.hinted_pages().retain(id, epoch, digests, for_ms, bytes_max, namespace_bytes_max,
                                        statuses);
  });
  return nb::make_tuple(pack(statuses), why);
}

nb::bytes first_to_go(Engine& engine, const nb::bytes& namespace_id, uint64_t epoch,
                      const nb::bytes& packed) {
  const InPlace<Digest> digests(packed, "digests");
  const Digest id = unpack_digest(namespace_id);
  std::vector<PageStatus> statuses(std::span<const Digest>(digests).size());
  unlocked([&] { engine.hinted_pages().first_to_go(id, epoch, digests, statuses); });
  return pack(statuses);
}

nb::bytes to_disk(Engine& engine, const nb::bytes& namespace_id, uint64_t epoch,
                  const nb::bytes& packed, bool write) {
  const InPlace<Digest> digests(packed, "digests");
  const Digest id = unpack_digest(namespace_id);
  std::vector<PageStatus> statuses(std::span<const Digest>(digests).size());
  unlocked([&] { engine.hinted_pages().to_disk(id, epoch, digests, write, statuses); });
  return pack(statuses);
}

}  // namespace

void bind_hints(nb::class_<Engine>& engine) {
  engine
      .def("brought_by_hint", call(&Engine::hinted_pages, &HintedPages::brought),
           nb::arg("namespace_id"), nb::arg("epoch"), nb::arg("digests"))
      .def("unused_hint_bytes", call(&Engine::hinted_pages, &HintedPages::unused_bytes),
           nb::arg("namespace_id"), nb::arg("epoch"))
      .def("retain", &retain, nb::arg("namespace_id"), nb::arg("epoch"), nb::arg("digests"),
           nb::arg("for_ms"), nb::arg("bytes_max"), nb::arg("namespace_bytes_max"))
      .def("first_to_go", &first_to_go, nb::arg("namespace_id"), nb::arg("epoch"),
           nb::arg("digests"))
      .def("to_disk", &to_disk, nb::arg("namespace_id"), nb::arg("epoch"), nb::arg("digests"),
           nb::arg("write"));
}

}  // namespace peercached
