// The module peercached._native, described in peercached/_native.pyi.

#include "bindings/packed.h"

namespace peercached {

NB_MODULE(_native, module) {
  // At exit, signal handlers and gRPC may still hold an engine, which the collector does not see. A
  // warning would be noise: the operator's last line should say why the start failed.
  nb::set_leak_warnings(false);
  bind_engine(module);
  bind_tables(module);
  bind_limits(module);
  bind_bare_reads(module);
  bind_build(module);
  bind_layouts(module);
}

}  // namespace peercached
