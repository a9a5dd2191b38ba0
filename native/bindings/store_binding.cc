// The object store, as the control plane feeds and serves it (peercached/cold/).

#include <nanobind/stl/string.h>

#include <algorithm>
#include <map>

#include "bindings/calls.h"
#include "common/copy.h"

namespace peercached {

namespace {

constexpr uint32_t kPayloadAlign = 64;

// A Python object's bytes, in place.
class ObjectBytes {
 public:
  explicit ObjectBytes(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
  }
  ~ObjectBytes() { PyBuffer_Release(&view_); }
  ObjectBytes(const ObjectBytes&) = delete;
  ObjectBytes& operator=(const ObjectBytes&) = delete;
  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(view_.buf), static_cast<size_t>(view_.len)};
  }

 private:
  Py_buffer view_;
};

ObjectIndex& objects_of(Engine& engine) { return engine.storage().objects(); }

bool add_object(Engine& engine, const nb::bytes& name, const nb::bytes& namespace_id,
                uint64_t epoch, const nb::bytes& entries) {
  const StoredObject object{unpack_digest(name), unpack_digest(namespace_id), epoch};
  const InPlace<ObjectEntry> pages(entries, "entries");
  return unlocked([&] { return objects_of(engine).add(object, pages); });
}

// (name, namespace id, epoch, entries) of each object that has some of these pages, the entries in
// the order of their places.
nb::list stored_pages(Engine& engine, const nb::bytes& packed) {
  const InPlace<Digest> digests(packed, "digests");
  std::map<uint32_t, std::pair<StoredObject, std::vector<ObjectEntry>>> found;
  unlocked([&] {
    const ObjectIndex& objects = objects_of(engine);
    for (const Digest& digest : std::span<const Digest>(digests)) {
      if (const auto place = objects.find(digest))
        found[place->object].second.push_back(place->entry);
    }
    for (auto& [number, of_object] : found) {
      of_object.first = objects.object(number);
      std::ranges::sort(of_object.second, {}, &ObjectEntry::offset);
    }
  });
  nb::list list;
  for (const auto& [number, of_object] : found) {
    const auto& [object, entries] = of_object;
    list.append(
        nb::make_tuple(pack(object.name), pack(object.namespace_id), object.epoch, pack(entries)));
  }
  return list;
}

// Of these digests, those that are in the index.
nb::bytes stored_digests(Engine& engine, const nb::bytes& packed) {
  const InPlace<Digest> digests(packed, "digests");
  std::vector<Digest> found;
  unlocked([&] {
    for (const Digest& digest : std::span<const Digest>(digests))
      if (objects_of(engine).find(digest)) found.push_back(digest);
  });
  return pack(found);
}

// `until_s`: of the monotonic clock.
TimePoint time_at(double until_s) {
  return TimePoint(std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::clamp(until_s, 0.0, 1e9))));
}

void vouch_until(Engine& engine, double until_s) {
  objects_of(engine).vouch_until(time_at(until_s));
}

// Copies pages of the pool for an object: (entries, payloads). Leaves out those that are not here
// any more. At most `bytes_max` of payloads.
nb::tuple copy_pages(Engine& engine, const nb::bytes& packed, uint32_t bytes_max) {
  const InPlace<Digest> given(packed, "digests");
  const std::span<const Digest> digests = given;
  Pool& pool = engine.storage().pool();
  HeldSlots held(pool);
  std::vector<ObjectEntry> entries;
  uint64_t bytes = 0;
  unlocked([&] {
    std::vector<PinnedPage> pins(digests.size());
    pool.pin(digests, nullptr, /*touch=*/false, pins);
    HeldSlots unused(pool);
    for (size_t i = 0; i < pins.size(); ++i) {
      if (!pins[i]) continue;
      const PinnedPage page = pins[i];
      if (bytes + page.length > bytes_max) {
        unused.take(pins[i]);
        continue;
      }
      held.take(pins[i]);
      entries.push_back({digests[i], page.checksum, static_cast<uint32_t>(bytes), page.length});
      bytes = (bytes + page.length + kPayloadAlign - 1) / kPayloadAlign * kPayloadAlign;
    }
  });
  PyObject* made = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(bytes));
  if (made == nullptr) throw nb::python_error();
  const auto payloads = nb::steal<nb::bytes>(made);
  auto* to = reinterpret_cast<std::byte*>(PyBytes_AsString(made));
  unlocked([&] {
    uint64_t end = 0;
    std::vector<ObjectEntry> good;
    for (size_t i = 0; i < entries.size(); ++i) {
      const ObjectEntry& entry = entries[i];
      std::memset(to + end, 0, entry.offset - end);
      end = uint64_t{entry.offset} + entry.length;
      // Bad memory: leave the page out.
      const std::byte* from = held.pages()[i].payload();
      if (copy_and_checksum(to + entry.offset, from, entry.length) == entry.checksum)
        good.push_back(entry);
    }
    std::memset(to + end, 0, bytes - end);
    entries = std::move(good);
    held = HeldSlots(pool);
  });
  return nb::make_tuple(pack(entries), payloads);
}

// Takes pages of an object into the pool. `payloads`: the object's bytes from `base` on. Returns
// the digests that are in the pool now, those with other bytes than their checksums say, and why
// others were not taken.
nb::tuple land_pages(Engine& engine, const nb::bytes& namespace_id, uint64_t epoch,
                     const nb::bytes& packed, uint64_t base, nb::handle payloads,
                     double valid_until_s, uint32_t timeout_ms) {
  const InPlace<ObjectEntry> given(packed, "entries");
  const ObjectBytes buffer(payloads);
  const std::span<const std::byte> bytes = buffer.bytes();
  Handover part;
  part.namespace_id = unpack_digest(namespace_id);
  part.epoch = epoch;
  part.valid_until = time_at(valid_until_s);
  std::vector<ReadOp> landed;
  std::vector<Digest> cut;
  for (const ObjectEntry& entry : std::span<const ObjectEntry>(given)) {
    if (entry.length == 0 || entry.offset < base || entry.offset - base > bytes.size() ||
        entry.length > bytes.size() - (entry.offset - base)) {
      cut.push_back(entry.digest);
      continue;
    }
    RecordRow row;
    row.digest = entry.digest;
    row.length = entry.length;
    part.rows.push_back(row);
    ReadOp op;
    op.digest = entry.digest;
    op.length = entry.length;
    op.header.checksum = entry.checksum;
    // It is only read from here.
    op.dest = const_cast<std::byte*>(bytes.data()) + (entry.offset - base);
    landed.push_back(op);
  }
  Adopted adopted;
  if (!landed.empty())
    adopted = unlocked(
        [&] { return engine.adopter().land(part, landed, Deadline::after_ms(timeout_ms)); });
  adopted.corrupt.insert(adopted.corrupt.end(), cut.begin(), cut.end());
  return nb::make_tuple(pack(adopted.taken), pack(adopted.corrupt), adopted.why_not);
}

// The pages that the pool evicts next and that were read at least so often, as coldest() has them.
nb::list store_candidates(Engine& engine, uint64_t bytes, uint8_t reads_min) {
  const Handovers found = unlocked([&] { return engine.offers().coldest_read(bytes, reads_min); });
  nb::list list;
  for (const Handover& part : found.parts) {
    std::vector<Digest> digests;
    uint64_t sum = 0;
    for (const RecordRow& row : part.rows) {
      digests.push_back(row.digest);
      sum += row.length;
    }
    list.append(nb::make_tuple(pack(part.namespace_id), part.epoch, pack(digests), sum));
  }
  return list;
}

nb::dict store_stats(Engine& engine) {
  const ObjectIndex::Stats stats = objects_of(engine).stats();
  nb::dict dict;
  dict["pages"] = stats.pages;
  dict["objects"] = stats.objects;
  dict["bytes"] = stats.bytes;
  return dict;
}

}  // namespace

void bind_store(nb::class_<Engine>& engine) {
  engine
      .def("add_object", &add_object, nb::arg("name"), nb::arg("namespace_id"), nb::arg("epoch"),
           nb::arg("entries"))
      .def("stored_pages", &stored_pages, nb::arg("digests"))
      .def("stored_digests", &stored_digests, nb::arg("digests"))
      .def("drop_stored", call(objects_of, &ObjectIndex::drop), nb::arg("digests"))
      .def("drop_object", call(objects_of, &ObjectIndex::drop_object), nb::arg("name"))
      .def("drop_stored_below", call(objects_of, &ObjectIndex::drop_below), nb::arg("namespace_id"),
           nb::arg("epoch"))
      .def("vouch_until", &vouch_until, nb::arg("until_s"))
      .def("copy_pages", &copy_pages, nb::arg("digests"), nb::arg("bytes_max"))
      .def("land_pages", &land_pages, nb::arg("namespace_id"), nb::arg("epoch"), nb::arg("entries"),
           nb::arg("base"), nb::arg("payloads"), nb::arg("valid_until_s"), nb::arg("timeout_ms"))
      .def("store_candidates", &store_candidates, nb::arg("bytes"), nb::arg("reads_min"))
      .def("store_stats", &store_stats);
}

}  // namespace peercached
