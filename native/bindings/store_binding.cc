// The object store, as the control plane feeds and serves it (peercached/cold/).

#include <nanobind/stl/string.h>

#include <algorithm>
#include <map>
#include <optional>

#include "bindings/calls.h"
#include "common/copy.h"
#include "engine/storage/leaving_pages.h"
#include "engine/storage/page_seal.h"

namespace peercached {

namespace {

constexpr uint32_t kPayloadAlign = 64;
// Time for the disk when pages are copied from there.
constexpr int64_t kDiskMs = 2'000;

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

std::span<const std::byte> bytes_of(const nb::bytes& object) {
  return {reinterpret_cast<const std::byte*>(object.c_str()), object.size()};
}

ObjectIndex& objects_of(Engine& engine) { return engine.storage().objects(); }

bool add_object(Engine& engine, const nb::bytes& name, const nb::bytes& home,
                const nb::bytes& namespace_id, uint64_t epoch, uint32_t generation,
                const nb::bytes& entries) {
  const StoredObject object{unpack_digest(name), unpack_digest(namespace_id), epoch, generation,
                            unpack_digest(home)};
  const InPlace<ObjectEntry> pages(entries, "entries");
  return unlocked([&] { return objects_of(engine).add(object, pages); });
}

// The pages behind the last one of `entries` that are not in our pool, while it has free room.
std::vector<ObjectEntry> behind(Engine& engine, std::span<const ObjectEntry> entries,
                                uint64_t bytes) {
  bytes = std::min(bytes, engine.storage().pool().room().free_bytes);
  if (bytes == 0) return {};
  std::vector<ObjectEntry> behind = objects_of(engine).behind(entries.back().digest, bytes);
  std::vector<Digest> digests;
  for (const ObjectEntry& entry : behind) digests.push_back(entry.digest);
  std::vector<uint32_t> here(digests.size());
  engine.storage().pool().lengths(digests, here);
  size_t at = 0;
  std::erase_if(behind, [&](const ObjectEntry&) { return here[at++] != 0; });
  return behind;
}

// (name, home, namespace id, epoch, generation, entries, entries behind) of each object that has
// some of these pages, the entries in the order of their places. Pages in our pool are left out.
nb::list stored_pages(Engine& engine, const nb::bytes& packed, uint64_t behind_bytes) {
  struct Found {
    StoredObject object;
    std::vector<ObjectEntry> entries, behind;
  };
  const InPlace<Digest> digests(packed, "digests");
  std::map<uint32_t, Found> found;
  unlocked([&] {
    const ObjectIndex& objects = objects_of(engine);
    const std::span<const Digest> wanted = digests;
    std::vector<uint32_t> here(wanted.size());
    engine.storage().pool().lengths(wanted, here);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto place = here[i] != 0 ? std::nullopt : objects.find(wanted[i]);
      if (place) found[place->object].entries.push_back(place->entry);
    }
    for (auto& [number, of_object] : found) {
      of_object.object = objects.object(number);
      std::ranges::sort(of_object.entries, {}, &ObjectEntry::offset);
      of_object.behind = behind(engine, of_object.entries, behind_bytes);
    }
  });
  nb::list list;
  for (const auto& [number, of_object] : found) {
    const StoredObject& object = of_object.object;
    list.append(nb::make_tuple(pack(object.name), pack(object.home), pack(object.namespace_id),
                               object.epoch, object.generation, pack(of_object.entries),
                               pack(of_object.behind)));
  }
  return list;
}

// The names of all objects, and the bytes of their pages that are in the index.
nb::list stored_objects(Engine& engine) {
  const auto objects = unlocked([&] { return objects_of(engine).objects(); });
  nb::list list;
  for (const auto& [name, bytes] : objects) list.append(nb::make_tuple(pack(name), bytes));
  return list;
}

// Of these pages, the entries of those that are found in that object.
nb::bytes stored_in(Engine& engine, const nb::bytes& name, const nb::bytes& packed) {
  const Digest wanted = unpack_digest(name);
  const InPlace<Digest> digests(packed, "digests");
  std::vector<ObjectEntry> found;
  unlocked([&] {
    const ObjectIndex& objects = objects_of(engine);
    for (const Digest& digest : std::span<const Digest>(digests)) {
      const auto place = objects.find(digest);
      if (place && objects.object(place->object).name == wanted) found.push_back(place->entry);
    }
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

// Copies pages of the pool or of the disk for an object: (entries, payloads, the generation that
// each page was born in). Leaves out those that are not here any more. The first ones, at most
// `bytes_max` of payloads. `sealed_with`: as PageSeal takes it; empty: the pages are not sealed.
nb::tuple copy_pages(Engine& engine, const nb::bytes& packed, uint32_t bytes_max,
                     const nb::bytes& sealed_with) {
  const InPlace<Digest> given(packed, "digests");
  std::optional<PageSeal> seal;
  if (sealed_with.size() != 0) seal.emplace(bytes_of(sealed_with));
  std::optional<ObjectPages> pages;
  unlocked([&] {
    pages.emplace(engine.storage().pool(), engine.storage().disk(), given, bytes_max,
                  seal ? PageSeal::kBytes : 0, kPayloadAlign, Deadline::after_ms(kDiskMs));
  });
  const uint64_t bytes = pages->bytes();
  PyObject* made = PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(bytes));
  if (made == nullptr) throw nb::python_error();
  const auto payloads = nb::steal<nb::bytes>(made);
  auto* to = reinterpret_cast<std::byte*>(PyBytes_AsString(made));
  std::vector<ObjectEntry> good;
  std::vector<Born> born;
  unlocked([&] {
    uint64_t end = 0;
    for (const auto& [entry, from, page_born] : pages->pages()) {
      std::memset(to + end, 0, entry.offset - end);
      end = uint64_t{entry.offset} + entry.length + (seal ? PageSeal::kBytes : 0);
      const uint64_t sum = seal ? seal->seal(entry, from, to + entry.offset)
                                : copy_and_checksum(to + entry.offset, from, entry.length);
      if (sum != entry.checksum) continue;  // bad memory
      good.push_back(entry);
      born.push_back(page_born);
    }
    std::memset(to + end, 0, bytes - end);
    pages.reset();
  });
  return nb::make_tuple(pack(good), payloads, pack(born));
}

// Takes pages of an object into the pool. `payloads`: the object's bytes from `base` on. Returns
// the digests that are in the pool now, those with other bytes than their checksums say, and why
// others were not taken. `ahead`: nobody has asked for them, so they take only free room.
// `sealed_with`: as PageSeal takes it; empty: the pages are not sealed.
nb::tuple land_pages(Engine& engine, const nb::bytes& namespace_id, uint64_t epoch,
                     uint32_t generation, const nb::bytes& packed, uint64_t base,
                     nb::handle payloads, double valid_until_s, uint32_t timeout_ms, bool ahead,
                     const nb::bytes& sealed_with) {
  const InPlace<ObjectEntry> given(packed, "entries");
  const ObjectBytes buffer(payloads);
  const std::span<const std::byte> bytes = buffer.bytes();
  Handover part;
  part.namespace_id = unpack_digest(namespace_id);
  part.epoch = epoch;
  part.valid_until = time_at(valid_until_s);
  part.ahead = ahead;
  std::optional<PageSeal> seal;
  if (sealed_with.size() != 0) seal.emplace(bytes_of(sealed_with));
  std::vector<ReadOp> landed;
  std::vector<Digest> cut;
  for (const ObjectEntry& entry : std::span<const ObjectEntry>(given)) {
    const std::span<const std::byte> stored = stored_page(entry, seal.has_value(), base, bytes);
    if (stored.empty()) {
      cut.push_back(entry.digest);
      continue;
    }
    RecordRow row;
    row.digest = entry.digest;
    row.length = entry.length;
    part.rows.push_back(row);
    ReadOp op;
    op.digest = entry.digest;
    op.offset = entry.offset;
    op.length = entry.length;
    op.header.checksum = entry.checksum;
    op.header.born = generation;
    // It is only read from here.
    op.dest = const_cast<std::byte*>(stored.data());
    landed.push_back(op);
  }
  Adopted adopted;
  if (!landed.empty())
    adopted = unlocked([&] {
      return engine.adopter().land(part, landed, Deadline::after_ms(timeout_ms),
                                   seal ? &*seal : nullptr);
    });
  adopted.corrupt.insert(adopted.corrupt.end(), cut.begin(), cut.end());
  return nb::make_tuple(pack(adopted.taken), pack(adopted.corrupt), adopted.why_not);
}

LeavingPages leaving_of(Engine& engine) {
  Storage& storage = engine.storage();
  return {storage.pool(), storage.disk(), storage.namespaces(), storage.objects()};
}

nb::list listed(const std::vector<LeavingPart>& parts) {
  nb::list list;
  for (const LeavingPart& part : parts)
    list.append(
        nb::make_tuple(pack(part.namespace_id), part.epoch, pack(part.digests), part.bytes));
  return list;
}

// (namespace id, epoch, digests, bytes) of each part, see LeavingPages.
nb::list leaving_next(Engine& engine, uint64_t bytes, uint8_t uses_min, uint64_t part_bytes,
                      const nb::bytes& packed) {
  const InPlace<Digest> under_way(packed, "digests");
  return listed(
      unlocked([&] { return leaving_of(engine).next(bytes, uses_min, part_bytes, under_way); }));
}

nb::list leaving_at_end(Engine& engine, uint8_t uses_min, bool disk_stays, uint64_t part_bytes) {
  return listed(
      unlocked([&] { return leaving_of(engine).at_end(uses_min, disk_stays, part_bytes); }));
}

// (home, namespace id, epoch, generation, entry) of each of these pages that the store has, also if
// it is in our pool.
nb::list stored_at(Engine& engine, const nb::bytes& packed) {
  const InPlace<Digest> digests(packed, "digests");
  std::vector<std::pair<StoredObject, ObjectEntry>> found;
  unlocked([&] {
    const ObjectIndex& objects = objects_of(engine);
    for (const Digest& digest : std::span<const Digest>(digests)) {
      if (const auto place = objects.find(digest))
        found.emplace_back(objects.object(place->object), place->entry);
    }
  });
  nb::list list;
  for (const auto& [object, entry] : found) {
    list.append(nb::make_tuple(pack(object.home), pack(object.namespace_id), object.epoch,
                               object.generation, pack(std::vector{entry})));
  }
  return list;
}

nb::dict store_stats(Engine& engine) {
  const ObjectIndex::Stats stats = objects_of(engine).stats();
  nb::dict dict;
  dict["pages"] = stats.pages;
  dict["objects"] = stats.objects;
  dict["bytes"] = stats.bytes;
  const PoolStats pool = engine.storage().pool().stats();
  dict["ahead_pages"] = pool.ahead;
  dict["ahead_used_pages"] = pool.ahead_used;
  return dict;
}

}  // namespace

void bind_store(nb::class_<Engine>& engine) {
  engine
      .def("add_object", &add_object, nb::arg("name"), nb::arg("home"), nb::arg("namespace_id"),
           nb::arg("epoch"), nb::arg("generation"), nb::arg("entries"))
      .def("stored_pages", &stored_pages, nb::arg("digests"), nb::arg("behind_bytes"))
      .def("stored_at", &stored_at, nb::arg("digests"))
      .def("stored_objects", &stored_objects)
      .def("stored_in", &stored_in, nb::arg("name"), nb::arg("digests"))
      .def("drop_stored", call(objects_of, &ObjectIndex::drop), nb::arg("digests"))
      .def("drop_objects", call(objects_of, &ObjectIndex::drop_objects), nb::arg("names"))
      .def("raise_generation", call(objects_of, &ObjectIndex::raise_generation),
           nb::arg("generation"))
      .def("drop_stored_below", call(objects_of, &ObjectIndex::drop_below), nb::arg("namespace_id"),
           nb::arg("epoch"), nb::arg("generation"))
      .def("vouch_until", &vouch_until, nb::arg("until_s"))
      .def("copy_pages", &copy_pages, nb::arg("digests"), nb::arg("bytes_max"),
           nb::arg("sealed_with"))
      .def("land_pages", &land_pages, nb::arg("namespace_id"), nb::arg("epoch"),
           nb::arg("generation"), nb::arg("entries"), nb::arg("base"), nb::arg("payloads"),
           nb::arg("valid_until_s"), nb::arg("timeout_ms"), nb::arg("ahead"),
           nb::arg("sealed_with"))
      .def("leaving_next", &leaving_next, nb::arg("bytes"), nb::arg("uses_min"),
           nb::arg("part_bytes"), nb::arg("under_way"))
      .def("leaving_at_end", &leaving_at_end, nb::arg("uses_min"), nb::arg("disk_stays"),
           nb::arg("part_bytes"))
      .def("store_stats", &store_stats);
}

}  // namespace peercached
