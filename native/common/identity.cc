#include "common/identity.h"

#include <sodium.h>

#include <cstring>

namespace peercached {

namespace {

static_assert(crypto_shorthash_siphashx24_BYTES == sizeof(Digest));
static_assert(crypto_shorthash_siphashx24_KEYBYTES == sizeof(Key128));

template <typename Out>
Out blake2b_128(const Key128& key, std::string_view label, uint64_t number, std::string_view text) {
  crypto_generichash_state state;
  crypto_generichash_init(&state, key.data(), key.size(), sizeof(Out));
  auto add = [&](const void* bytes, size_t length) {
    crypto_generichash_update(&state, static_cast<const unsigned char*>(bytes), length);
  };
  add(label.data(), label.size());
  add(&number, sizeof number);
  add(text.data(), text.size());
  Out out;
  static_assert(sizeof(Out) == 16);
  crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(&out), sizeof out);
  return out;
}

}  // namespace

Key128 derive_namespace_key(const Key128& cluster_key, std::string_view name, uint64_t epoch) {
  return blake2b_128<Key128>(cluster_key, "peercached ns", epoch, name);
}

Digest namespace_id(const Key128& cluster_key, std::string_view name) {
  return blake2b_128<Digest>(cluster_key, "peercached id", 0, name);
}

StoreIdentity store_identity(const Key128& cluster_key, std::string_view node_id) {
  return blake2b_128<StoreIdentity>(cluster_key, "peercached store", 0, node_id);
}

Digest digest_of(const Key128& namespace_key, std::string_view key) {
  Digest digest;
  crypto_shorthash_siphashx24(reinterpret_cast<unsigned char*>(&digest),
                              reinterpret_cast<const unsigned char*>(key.data()), key.size(),
                              namespace_key.data());
  return digest;
}

}  // namespace peercached
