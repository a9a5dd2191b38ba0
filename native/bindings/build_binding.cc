// The source and the compiler that this data plane was built from.

#include "bindings/packed.h"

namespace peercached {

void bind_build(nb::module_& module) {
  module.def("build_info", [] {
    nb::dict info;
    info["version"] = PEERCACHED_VERSION;
    info["commit"] = PEERCACHED_COMMIT;  // empty: unknown
    info["compiler"] = __VERSION__;
    info["sanitize"] = PEERCACHED_SANITIZE;
    return info;
  });
}

}  // namespace peercached
