// Namespaces and digests: how a worker's key becomes the 16 bytes used everywhere else.
//
// namespace key = BLAKE2b-128(key = cluster key, "peercached ns" || epoch || name)
// digest        = SipHash-2-4-128(namespace key, key)
//
// The epoch makes `clear(namespace)` instant: a higher epoch gives every key another digest.
// SipHash resists chosen keys only while the cluster key is secret. Without a secret, keys must be
// collision-resistant hashes themselves, as SGLang's are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/types.h"

namespace peercached {

using Key128 = std::array<uint8_t, 16>;

Key128 derive_namespace_key(const Key128& cluster_key, std::string_view name, uint64_t epoch);
Digest digest_of(const Key128& namespace_key, std::string_view key);

// Names a namespace whatever its epoch: BLAKE2b-128(key = cluster key, "peercached id" || 0 ||
// name).
Digest namespace_id(const Key128& cluster_key, std::string_view name);

// The owner of a file or folder of pages that outlives the daemon: BLAKE2b-128(key = cluster key,
// "peercached store" || 0 || node id). Another node or cluster has another one.
using StoreIdentity = std::array<std::byte, 16>;
StoreIdentity store_identity(const Key128& cluster_key, std::string_view node_id);

}  // namespace peercached
