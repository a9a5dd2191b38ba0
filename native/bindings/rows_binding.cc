// Loops over packed digests and records that Python would run page by page.

#include <algorithm>
#include <array>
#include <iterator>
#include <unordered_map>
#include <unordered_set>

#include "bindings/packed.h"

namespace peercached {

namespace {

nb::bytes missing(const nb::bytes& packed_digests, const nb::bytes& items, size_t stride) {
  const auto digests = unpack<Digest>(packed_digests, "digests");
  if (stride < sizeof(Digest) || items.size() % stride != 0) {
    throw std::invalid_argument("items: " + std::to_string(items.size()) +
                                " bytes do not divide into items of " + std::to_string(stride));
  }
  std::vector<Digest> out;
  unlocked([&] {
    std::unordered_set<Digest, DigestHash> found;
    found.reserve(items.size() / stride);
    for (size_t at = 0; at < items.size(); at += stride) {
      Digest digest;
      std::memcpy(&digest, items.c_str() + at, sizeof digest);
      found.insert(digest);
    }
    std::copy_if(digests.begin(), digests.end(), std::back_inserter(out),
                 [&](const Digest& digest) { return !found.contains(digest); });
  });
  return pack(out);
}

nb::bytes standing(const nb::bytes& packed_rows, const nb::bytes& packed_changes) {
  const auto rows = unpack<RecordRow>(packed_rows, "rows");
  const auto changes = unpack<RecordRow>(packed_changes, "changes");
  std::vector<RecordRow> out;
  unlocked([&] {
    std::unordered_map<Digest, Generation, DigestHash> withdrawn;
    for (const RecordRow& row : changes) {
      if ((row.flags & kRecordWithdraw) == 0) continue;
      Generation& newest = withdrawn[row.digest];
      newest = std::max<Generation>(newest, row.generation);
    }
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(out), [&](const RecordRow& row) {
      if (row.flags & kRecordWithdraw) return true;
      const auto found = withdrawn.find(row.digest);
      return found == withdrawn.end() || found->second < row.generation;
    });
  });
  return pack(out);
}

nb::list split_buckets(const nb::bytes& packed) {
  const auto rows = unpack<RecordRow>(packed, "rows");
  std::array<std::vector<RecordRow>, kSummaryBuckets> buckets;
  unlocked([&] {
    for (const RecordRow& row : rows) buckets[bucket_of(row.digest)].push_back(row);
  });
  nb::list list;
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (!buckets[i].empty()) list.append(nb::make_tuple(i, pack(buckets[i])));
  }
  return list;
}

}  // namespace

void bind_rows(nb::module_& module) {
  module.def("missing", &missing, nb::arg("digests"), nb::arg("items"), nb::arg("stride"));
  module.def("standing", &standing, nb::arg("rows"), nb::arg("changes"));
  module.def("split_buckets", &split_buckets, nb::arg("rows"));
}

}  // namespace peercached
