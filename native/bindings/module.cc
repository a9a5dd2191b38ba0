// The module peercached._native, described in peercached/_native.pyi.

#include "bindings/packed.h"

namespace peercached {

namespace {

nb::bytes map_rows(const nb::bytes& packed, const nb::bytes& mapping_packed) {
  auto rows = unpack<RecordRow>(packed, "rows");
  const auto mapping = unpack<HolderIndex>(mapping_packed, "mapping");
  size_t kept = 0;
  for (const RecordRow& row : rows) {
    if (row.holder >= mapping.size()) {
      throw std::invalid_argument("rows: holder " + std::to_string(row.holder) +
                                  " is outside the table of " + std::to_string(mapping.size()));
    }
    if (mapping[row.holder] == kNoHolder) continue;
    rows[kept] = row;
    rows[kept++].holder = mapping[row.holder];
  }
  rows.resize(kept);
  return pack(rows);
}

}  // namespace

NB_MODULE(_native, module) {
  // At exit, signal handlers and gRPC may still hold an engine, which the collector does not see. A
  // warning would be noise: the operator's last line should say why the start failed.
  nb::set_leak_warnings(false);
  module.def("map_rows", &map_rows, nb::arg("rows"), nb::arg("mapping"));
  bind_rows(module);
  bind_engine(module);
  bind_tables(module);
  bind_limits(module);
  bind_bare_reads(module);
  bind_build(module);
  bind_layouts(module);
}

}  // namespace peercached
