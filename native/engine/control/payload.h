// Payloads of events and of their answers (control.h): structs, rows and texts, one behind the
// other.
#pragma once

#include <cstddef>
#include <cstring>
#include <ranges>
#include <span>
#include <vector>

namespace peercached {

// The bytes of these parts, each a plain struct or a range of such.
template <typename... Parts>
std::vector<std::byte> payload_of(const Parts&... parts) {
  std::vector<std::byte> payload;
  const auto append = [&]<typename Part>(const Part& part) {
    std::span<const std::byte> bytes;
    if constexpr (std::ranges::contiguous_range<Part>)
      bytes = std::as_bytes(std::span(part));
    else
      bytes = std::as_bytes(std::span(&part, 1));
    payload.insert(payload.end(), bytes.begin(), bytes.end());
  };
  (append(parts), ...);
  return payload;
}

// The whole items of an answer. An empty answer has no memory to copy from.
template <typename Item>
std::vector<Item> items_of(std::span<const std::byte> packed) {
  std::vector<Item> items(packed.size() / sizeof(Item));
  if (!items.empty()) std::memcpy(items.data(), packed.data(), items.size() * sizeof(Item));
  return items;
}

}  // namespace peercached
