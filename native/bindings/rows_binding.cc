// Packed digests and records taken apart where a loop over pages would be Python's otherwise.

#include <algorithm>
#include <array>
#include <unordered_set>

#include "bindings/packed.h"

namespace peercached {

namespace {

nb::bytes missing(const nb::bytes& packed_digests, const nb::bytes& packed_rows) {
  const auto digests = unpack<Digest>(packed_digests, "digests");
  const auto rows = unpack<RecordRow>(packed_rows, "rows");
  std::vector<Digest> out;
  {
    nb::gil_scoped_release unlocked;
    std::unordered_set<Digest, DigestHash> found;
    found.reserve(rows.size());
    for (const RecordRow& row : rows) found.insert(row.digest);
    std::copy_if(digests.begin(), digests.end(), std::back_inserter(out),
                 [&](const Digest& digest) { return !found.contains(digest); });
  }
  return pack(out);
}

nb::list split_buckets(const nb::bytes& packed) {
  const auto rows = unpack<RecordRow>(packed, "rows");
  std::array<std::vector<RecordRow>, kSummaryBuckets> buckets;
  {
    nb::gil_scoped_release unlocked;
    for (const RecordRow& row : rows) buckets[bucket_of(row.digest)].push_back(row);
  }
  nb::list list;
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (!buckets[i].empty()) list.append(nb::make_tuple(i, pack(buckets[i])));
  }
  return list;
}

}  // namespace

void bind_rows(nb::module_& module) {
  module.def("missing", &missing, nb::arg("digests"), nb::arg("rows"));
  module.def("split_buckets", &split_buckets, nb::arg("rows"));
}

}  // namespace peercached
