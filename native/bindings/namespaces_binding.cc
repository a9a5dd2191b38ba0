// Namespaces: their names, epochs, and the digests of their keys.

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <vector>

#include "bindings/calls.h"

namespace peercached {

namespace {

void check_namespace(const std::string& name) {
  if (name.size() > kNamespaceBytesMax) {
    throw std::invalid_argument("namespace: " + std::to_string(name.size()) + " bytes, " +
                                std::to_string(kNamespaceBytesMax) + " are the limit");
  }
}

// Opens no namespace: callers of the web page are not authenticated, and those of `locate` may be
// mistaken in the name.
nb::bytes key_digest(Engine& engine, const std::string& name, const nb::bytes& key) {
  check_namespace(name);
  const Key128 secret = engine.storage().namespaces().key_of(name);
  return pack(digest_of(secret, std::string_view(key.c_str(), key.size())));
}

nb::bytes key_digests(Engine& engine, const std::string& name,
                      const std::vector<std::string>& keys) {
  check_namespace(name);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].empty() || keys[i].size() > kKeyBytesMax) {
      throw std::invalid_argument("key " + std::to_string(i) + " has " +
                                  std::to_string(keys[i].size()) + " bytes: 1 to " +
                                  std::to_string(kKeyBytesMax) + " are possible");
    }
  }
  const Key128 secret = engine.storage().namespaces().key_of(name);
  std::vector<Digest> digests;
  digests.reserve(keys.size());
  for (const std::string& one : keys) digests.push_back(digest_of(secret, one));
  return pack(digests);
}

nb::bytes id_of_namespace(Engine& engine, const std::string& name) {
  check_namespace(name);
  return pack(engine.storage().namespaces().id_of(name));
}

nb::dict namespace_epochs(Engine& engine) {
  nb::dict epochs;
  for (const auto& [id, epoch] : engine.storage().namespaces().epochs()) epochs[pack(id)] = epoch;
  return epochs;
}

}  // namespace

void bind_namespaces(nb::class_<Engine>& engine) {
  engine.def("digest", &key_digest, nb::arg("namespace"), nb::arg("key"))
      .def("digests", &key_digests, nb::arg("namespace"), nb::arg("keys"))
      .def("namespace_id", &id_of_namespace, nb::arg("namespace"))
      .def("namespace_epoch", call(namespaces_of, &NamespaceTable::epoch_of),
           nb::arg("namespace_id"))
      .def("namespace_epochs", &namespace_epochs)
      .def("epochs_mark", call(namespaces_of, &NamespaceTable::epochs_mark))
      .def("raise_epoch", call(&Engine::storage, &Storage::raise_epoch), nb::arg("namespace_id"),
           nb::arg("epoch"));
}

}  // namespace peercached
