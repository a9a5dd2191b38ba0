// Seals pages for the object store, and opens them (docs/cold-tier.md, "Sealing").
//
//   sealed page: nonce (12 bytes, random) | ciphertext | tag (16 bytes)
//
// AES-256-GCM, in one pass with the page's checksum. The tag also covers the page's digest,
// checksum and length, and a text about its namespace, so no sealed page passes for another one. It
// does not cover the place: a compaction copies sealed pages as they are. The control plane derives
// the key, one for each namespace and epoch (peercached/cold/sealing.py).
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/storage/object_index.h"

namespace peercached {

// For one thread at a time.
class PageSeal {
 public:
  static constexpr size_t kKeyBytes = 32;
  static constexpr size_t kNonceBytes = 12;
  static constexpr size_t kTagBytes = 16;
  // A sealed page is longer by so much.
  static constexpr size_t kBytes = kNonceBytes + kTagBytes;

  // `given`: the key, and then the text about the namespace. Throws std::invalid_argument if there
  // is no key, std::runtime_error if OpenSSL fails.
  explicit PageSeal(std::span<const std::byte> given);

  // Seals entry.length bytes of `from`, and returns their checksum. Throws std::runtime_error.
  uint64_t seal(const ObjectEntry& entry, const std::byte* from, std::byte* to);
  // The reverse. Returns the checksum of the opened page, which the tag does not cover. nullopt:
  // this is not the page of that entry. Then `to` has garbage.
  std::optional<uint64_t> open(const ObjectEntry& entry, const std::byte* from, std::byte* to);

 private:
  struct Free {
    void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
  };
  void begin(const ObjectEntry& entry, const std::byte* nonce, bool seals);

  const std::unique_ptr<EVP_CIPHER_CTX, Free> context_;  // has the key, and forgets it at its end
  std::vector<std::byte> about_;
};

// A page as it is stored, in `bytes`: those of its object from `base` on. Empty if they do not have
// all of it. An entry and an object may be of anybody.
std::span<const std::byte> stored_page(const ObjectEntry& entry, bool sealed, uint64_t base,
                                       std::span<const std::byte> bytes);

}  // namespace peercached
