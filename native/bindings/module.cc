// The module peercached._native, described in peercached/_native.pyi.

#include "bindings/packed.h"
#include "engine/control.h"

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
  module.attr("DIGEST_BYTES") = sizeof(Digest);
  module.attr("ROW_BYTES") = sizeof(RecordRow);
  module.attr("SUMMARY_BUCKETS") = kSummaryBuckets;
  module.attr("EVENT_PUBLISH") = static_cast<int>(EventKind::publish);
  module.attr("EVENT_LOOKUP") = static_cast<int>(EventKind::lookup);
  module.attr("EVENT_REMOVE") = static_cast<int>(EventKind::remove);
  module.attr("EVENT_CLEAR") = static_cast<int>(EventKind::clear);
  module.attr("EVENT_PEER_TROUBLE") = static_cast<int>(EventKind::peer_trouble);
  module.attr("EVENT_LOST_UPDATES") = static_cast<int>(EventKind::lost_updates);
  module.attr("EVENT_PROMOTE") = static_cast<int>(EventKind::promote);
  module.attr("EVENT_CONNECT_CHANNEL") = static_cast<int>(EventKind::connect_channel);
  module.def("map_rows", &map_rows, nb::arg("rows"), nb::arg("mapping"));
  bind_rows(module);
  bind_engine(module);
  bind_tables(module);
  bind_limits(module);
  bind_bare_reads(module);
  bind_build(module);
}

}  // namespace peercached
