// How events call a page: by the hash that its engine uses for the block, or by its digest.
//
// A name is a kind and some bytes. The kinds are those of SET's flag kFlagNames (docs/protocol.md):
//
//   0         no name: events use the digest
//   1..32     a hash of so many bytes
//   0x88      a hash that is a signed integer, i64 little-endian
//   0x89      the same, unsigned
//   0xff      untold: no event names the page, because another page stands for the block
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "common/types.h"

namespace peercached {

inline constexpr uint8_t kNoName = 0;
inline constexpr uint8_t kNameBytesMax = 32;
inline constexpr uint8_t kSignedName = 0x88;
inline constexpr uint8_t kUnsignedName = 0x89;
inline constexpr uint8_t kUntold = 0xff;
inline constexpr size_t kNotAKind = SIZE_MAX;

// The bytes of a name of this kind; kNotAKind: there is no such kind.
constexpr size_t name_bytes(uint8_t kind) {
  if (kind <= kNameBytesMax) return kind;
  if (kind == kSignedName || kind == kUnsignedName) return sizeof(uint64_t);
  return kind == kUntold ? 0 : kNotAKind;
}

struct PageName {
  uint8_t kind = kNoName;
  std::array<std::byte, kNameBytesMax> bytes{};

  // `kind` must be one.
  static PageName of(uint8_t kind, const std::byte* at) {
    PageName name;
    name.kind = kind;
    if (const size_t size = name_bytes(kind); size != 0 && size <= kNameBytesMax)
      std::memcpy(name.bytes.data(), at, size);
    return name;
  }
  // Every engine's decoder takes an integer, and SGLang's takes nothing else.
  static PageName of(const Digest& digest) {
    return of(kSignedName, reinterpret_cast<const std::byte*>(&digest.hi));
  }
  std::span<const std::byte> span() const { return {bytes.data(), name_bytes(kind)}; }
  friend bool operator==(const PageName&, const PageName&) = default;
};

// The names of the pages of one set, by place. `bytes`: those of all names.
struct GivenNames {
  std::span<const uint8_t> kinds{};  // empty: none were given
  std::span<const std::byte> bytes{};
  uint16_t block_tokens = 0;  // tokens of a block; 0: unknown
};

}  // namespace peercached
