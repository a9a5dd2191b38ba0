// The numbers and layouts that Python has of its own, because it unpacks them or sends them to
// peers. tests/unit/data_plane/test_native_contract.py compares the two.

#include <cstddef>

#include "bindings/packed.h"

namespace peercached {

namespace {

#define PLACE(type, field) \
  fields[#field] = nb::make_tuple(offsetof(type, field), sizeof(type::field))

nb::dict record_row() {
  nb::dict fields;
  PLACE(RecordRow, digest);
  PLACE(RecordRow, offset);
  PLACE(RecordRow, generation);
  PLACE(RecordRow, check);
  PLACE(RecordRow, length);
  PLACE(RecordRow, holder);
  PLACE(RecordRow, flags);
  return fields;
}

#undef PLACE

}  // namespace

void bind_layouts(nb::module_& module) {
  module.attr("DIGEST_BYTES") = sizeof(Digest);
  module.attr("ROW_BYTES") = sizeof(RecordRow);
  module.attr("SELF_HOLDER") = kSelfHolder;
  module.attr("NO_HOLDER") = kNoHolder;
  module.attr("RESIDENT") = static_cast<int>(kRecordResident);
  module.attr("WITHDRAW") = static_cast<int>(kRecordWithdraw);
  module.attr("RECORD_ROW") = record_row();
  nb::list statuses;
  for (const char* name : kStatusNames) statuses.append(name);
  module.attr("PAGE_STATUSES") = statuses;
}

}  // namespace peercached
