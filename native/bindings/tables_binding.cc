// Parts of the engine on their own, for property tests, the simulator and the benchmark.

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "bindings/shard_calls.h"
#include "common/copy.h"
#include "engine/nodes.h"
#include "pool/pool.h"

namespace peercached {

namespace {

nb::dict shard_stats(const Shard& shard) {
  const ShardStats stats = shard.stats();
  nb::dict out;
  out["entries"] = stats.entries;
  out["bytes"] = stats.bytes;
  out["dead_entries"] = stats.dead_entries;
  out["capacity_entries"] = stats.capacity_entries;
  out["full"] = stats.full;
  return out;
}

// A pool with a minimal set path, to compare it with a model.
class PoolTable {
 public:
  explicit PoolTable(uint64_t pool_bytes)
      : pool_(
            [&] {
              PoolConfig config;
              config.size_bytes = pool_bytes;
              config.incarnation = 1;
              return config;
            }(),
            [this](std::span<const RecordRow> rows) {
              std::lock_guard lock(mutex_);
              for (const RecordRow& row : rows) evicted_.push_back(row.digest);
            }) {}

  nb::list set(const nb::bytes& packed, const nb::list& pages, const nb::bytes& parent_packed) {
    const auto digests = unpack<Digest>(packed, "digests");
    if (digests.size() != pages.size()) {
      throw std::invalid_argument("pages: " + std::to_string(pages.size()) + " for " +
                                  std::to_string(digests.size()) + " digests");
    }
    const auto parents = unpack<Digest>(parent_packed, "parent");
    std::vector<PageRequest> requests;
    std::vector<nb::bytes> contents;
    for (size_t i = 0; i < digests.size(); ++i) {
      contents.push_back(nb::cast<nb::bytes>(pages[i]));
      requests.push_back({digests[i], static_cast<uint32_t>(contents[i].size())});
    }
    std::vector<Reservation> out(requests.size());
    pool_.reserve(requests, parents.empty() ? nullptr : &parents[0], 1, out);
    std::vector<PinnedPage> committing, held;
    std::vector<uint64_t> checksums;
    nb::list outcomes;
    for (size_t i = 0; i < out.size(); ++i) {
      PageStatus status = PageStatus::ok;
      switch (out[i].outcome) {
        case ReserveOutcome::reserved:
          checksums.push_back(
              copy_and_checksum(out[i].page.payload(), contents[i].c_str(), contents[i].size()));
          committing.push_back(out[i].page);
          break;
        case ReserveOutcome::held:
          held.push_back(out[i].page);
          break;
        case ReserveOutcome::busy:
          status = PageStatus::duplicate_key;
          break;
        case ReserveOutcome::no_space:
          status = PageStatus::no_space;
          break;
        case ReserveOutcome::too_large:
          status = PageStatus::too_large;
          break;
      }
      outcomes.append(static_cast<int>(status));
    }
    std::vector<RecordRow> rows(committing.size());
    pool_.commit(committing, checksums, rows);
    pool_.unpin(committing);
    pool_.unpin(held);
    return outcomes;
  }

  nb::list get(const nb::bytes& packed) {
    const auto digests = unpack<Digest>(packed, "digests");
    std::vector<PinnedPage> pins(digests.size());
    pool_.pin(digests, nullptr, true, pins);
    nb::list pages;
    for (const PinnedPage& pin : pins) {
      if (pin) {
        pages.append(nb::bytes(reinterpret_cast<const char*>(pin.payload()), pin.length));
      } else {
        pages.append(nb::none());
      }
    }
    pool_.unpin(pins);
    return pages;
  }

  nb::bytes contains(const nb::bytes& packed) {
    const auto digests = unpack<Digest>(packed, "digests");
    std::vector<uint8_t> present(digests.size());
    pool_.contains(digests, false, present);
    return pack(present);
  }

  size_t remove(const nb::bytes& packed) {
    std::vector<RecordRow> rows;
    return pool_.remove(unpack<Digest>(packed, "digests"), rows);
  }

  nb::bytes evicted() {
    std::lock_guard lock(mutex_);
    nb::bytes packed = pack(evicted_);
    evicted_.clear();
    return packed;
  }

  nb::dict stats() const {
    const PoolStats stats = pool_.stats();
    nb::dict out;
    out["capacity_bytes"] = stats.capacity_bytes;
    out["used_bytes"] = stats.used_bytes;
    out["payload_bytes"] = stats.payload_bytes;
    out["keys"] = stats.keys;
    out["reserved"] = stats.reserved;
    out["pins"] = stats.pins;
    out["evictions"] = stats.evictions;
    out["removals"] = stats.removals;
    return out;
  }

 private:
  std::mutex mutex_;
  std::vector<Digest> evicted_;
  Pool pool_;
};

}  // namespace

void bind_tables(nb::module_& module) {
  nb::class_<Shard>(module, "ShardTable")
      .def(nb::init<uint64_t>(), nb::arg("capacity_entries"))
      .def("add_holder", &Shard::add_holder, nb::arg("holder"))
      .def("drop_holder", &Shard::drop_holder, nb::arg("holder"))
      .def("swept", &Shard::swept, nb::arg("holder"))
      .def("apply", &shard_apply, nb::arg("holder"), nb::arg("rows"))
      .def("lookup", &shard_lookup, nb::arg("digests"))
      .def("summary", &shard_summary, nb::arg("holder"), nb::arg("ring"), nb::arg("owner"))
      .def("replace", &shard_replace, nb::arg("holder"), nb::arg("bucket"), nb::arg("as_of"),
           nb::arg("rows"), nb::arg("ring"), nb::arg("owner"))
      .def("trim", &shard_trim, nb::arg("ring"), nb::arg("owner"))
      .def("sweep", &Shard::sweep, nb::arg("records"))
      .def("stats", &shard_stats);

  nb::class_<Ring>(module, "RingTable")
      .def(
          "__init__",
          [](Ring* self, const nb::bytes& positions, const nb::bytes& nodes, unsigned replicas) {
            new (self) Ring(make_ring(positions, nodes, replicas));
          },
          nb::arg("positions"), nb::arg("nodes"), nb::arg("replicas"))
      .def("owners", &owners_list, nb::arg("digest"))
      .def("split", &split_list, nb::arg("items"), nb::arg("stride"), nb::arg("first_only") = false)
      .def("shares", &shares_list, nb::arg("owners") = 1)
      .def(
          "summaries",
          [](const Ring& self, const nb::bytes& packed) {
            OwnerSummaries by_owner;
            add_to_summaries(by_owner, InPlace<RecordRow>(packed, "rows"), self);
            return summaries_dict(by_owner);
          },
          nb::arg("rows"))
      .def(
          "rows_of",
          [](const Ring& self, const nb::bytes& packed, HolderIndex owner, const nb::bytes& mask) {
            std::vector<RecordRow> owned;
            append_owned(owned, InPlace<RecordRow>(packed, "rows"), self, owner, bucket_mask(mask));
            return pack(owned);
          },
          nb::arg("rows"), nb::arg("owner"), nb::arg("buckets"));

  nb::class_<NodeTable>(module, "NodeTable")
      .def(nb::init<std::string, Incarnation>(), nb::arg("self_id"), nb::arg("self_incarnation"))
      .def(
          "add",
          [](NodeTable& self, const std::string& node_id, Incarnation incarnation,
             const Shard& shard) {
            return self.add(node_id, incarnation,
                            [&](HolderIndex candidate) { return shard.swept(candidate); });
          },
          nb::arg("node_id"), nb::arg("incarnation"), nb::arg("shard"))
      .def("drop", &NodeTable::drop, nb::arg("index"));

  nb::class_<PoolTable>(module, "PoolTable")
      .def(nb::init<uint64_t>(), nb::arg("pool_bytes"))
      .def("set", &PoolTable::set, nb::arg("digests"), nb::arg("pages"),
           nb::arg("parent") = nb::bytes("", 0))
      .def("get", &PoolTable::get, nb::arg("digests"))
      .def("contains", &PoolTable::contains, nb::arg("digests"))
      .def("remove", &PoolTable::remove, nb::arg("digests"))
      .def("evicted", &PoolTable::evicted)
      .def("stats", &PoolTable::stats);
}

}  // namespace peercached
