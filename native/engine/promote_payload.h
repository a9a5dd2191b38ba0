// The payload of EventKind::promote: a holder, and the pages that it is asked for.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "common/types.h"

namespace peercached {

inline std::vector<std::byte> promote_payload(HolderIndex holder, std::span<const Digest> digests) {
  std::vector<std::byte> payload(8 + digests.size_bytes());
  std::memcpy(payload.data(), &holder, sizeof holder);
  std::memcpy(payload.data() + 8, digests.data(), digests.size_bytes());
  return payload;
}

}  // namespace peercached
