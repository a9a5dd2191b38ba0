// Converts between Python bytes and spans of packed rows. Lengths are checked here, once.
#pragma once

#include <nanobind/nanobind.h>

#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/types.h"
#include "directory/ring.h"
#include "shard/shard.h"

namespace peercached {

class Engine;
struct EngineConfig;

namespace nb = nanobind;

template <typename T>
void check_whole(const nb::bytes& packed, const char* what) {
  if (packed.size() % sizeof(T) != 0) {
    throw std::invalid_argument(std::string(what) + ": " + std::to_string(packed.size()) +
                                " bytes is not a multiple of " + std::to_string(sizeof(T)));
  }
}

template <typename T>
std::vector<T> unpack(const nb::bytes& packed, const char* what) {
  check_whole<T>(packed, what);
  std::vector<T> items(packed.size() / sizeof(T));
  if (!items.empty()) std::memcpy(items.data(), packed.c_str(), packed.size());
  return items;
}

// The items in place if Python's bytes are aligned for them, else a copy. They nearly always are,
// but Python does not promise it. Valid while `packed` is.
template <typename T>
class InPlace {
 public:
  InPlace(const nb::bytes& packed, const char* what) {
    check_whole<T>(packed, what);
    if (reinterpret_cast<uintptr_t>(packed.c_str()) % alignof(T) == 0) {
      items_ = {reinterpret_cast<const T*>(packed.c_str()), packed.size() / sizeof(T)};
    } else {
      copy_ = unpack<T>(packed, what);
      items_ = copy_;
    }
  }
  InPlace(const InPlace&) = delete;
  InPlace& operator=(const InPlace&) = delete;
  operator std::span<const T>() const { return items_; }

 private:
  std::vector<T> copy_;
  std::span<const T> items_;
};

template <typename T>
nb::bytes pack(std::span<const T> items) {
  return nb::bytes(reinterpret_cast<const char*>(items.data()), items.size_bytes());
}
template <typename T>
nb::bytes pack(const std::vector<T>& items) {
  return pack(std::span<const T>(items));
}

inline nb::bytes pack(const Digest& digest) { return pack(std::span<const Digest>(&digest, 1)); }

// Returns what `call` returns. Other Python threads run meanwhile, so it must not touch Python
// objects.
template <typename Call>
auto unlocked(Call&& call) {
  nb::gil_scoped_release released;
  return call();
}

inline Digest unpack_digest(const nb::bytes& packed) {
  auto digests = unpack<Digest>(packed, "digest");
  if (digests.size() != 1) {
    throw std::invalid_argument("digest: one of 16 bytes is wanted, not " +
                                std::to_string(packed.size()) + " bytes");
  }
  return digests[0];
}

inline nb::list owners_list(const Ring& ring, const nb::bytes& digest) {
  HolderIndex owners[kOwnersMax];
  const unsigned count = ring.owners(unpack_digest(digest), owners);
  nb::list list;
  for (unsigned i = 0; i < count; ++i) list.append(owners[i]);
  return list;
}

inline nb::list shares_list(const Ring& ring, unsigned owners) {
  nb::list list;
  for (const auto& [owner, share] : ring.shares(owners)) list.append(nb::make_tuple(owner, share));
  return list;
}

inline Ring make_ring(const nb::bytes& positions, const nb::bytes& nodes, unsigned replicas,
                      uint64_t view_number = 0) {
  return Ring(unpack<uint64_t>(positions, "positions"), unpack<HolderIndex>(nodes, "nodes"),
              replicas, view_number);
}

// `keys`: a Config (peercached/config/schema.py). ValueError names a key with an unusable value.
EngineConfig config_of(nb::handle keys);
nb::list config_keys();

void bind_engine(nb::module_& module);
void bind_tables(nb::module_& module);
void bind_build(nb::module_& module);
void bind_layouts(nb::module_& module);
void bind_events(nb::module_& module, nb::class_<Engine>& engine);
void bind_operator(nb::class_<Engine>& engine);
void bind_traces(nb::class_<Engine>& engine);
void bind_directory(nb::class_<Engine>& engine);
void bind_kv_events(nb::class_<Engine>& engine);
void bind_namespaces(nb::class_<Engine>& engine);
void bind_pages(nb::class_<Engine>& engine);
void bind_peers(nb::class_<Engine>& engine);
void bind_pins(nb::class_<Engine>& engine);
void bind_hints(nb::class_<Engine>& engine);
void bind_removals(nb::class_<Engine>& engine);
void bind_store(nb::class_<Engine>& engine);
void bind_limits(nb::module_& module);
void bind_bare_reads(nb::module_& module);

}  // namespace peercached
