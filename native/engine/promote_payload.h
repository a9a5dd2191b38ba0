// The payload of EventKind::promote: a holder, and the pages that it is asked for.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "engine/control.h"

namespace peercached {

inline std::vector<std::byte> promote_payload(HolderIndex holder, std::span<const Digest> digests) {
  const PromoteQuestion head{holder};
  std::vector<std::byte> payload(sizeof head + digests.size_bytes());
  std::memcpy(payload.data(), &head, sizeof head);
  std::memcpy(payload.data() + sizeof head, digests.data(), digests.size_bytes());
  return payload;
}

}  // namespace peercached
