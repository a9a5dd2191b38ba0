#include "common/foreign_text.h"

#include <algorithm>
#include <cstdint>

namespace peercached {
namespace {

bool may_be_shown(uint32_t point) {
  if (point < 0x20 || (point >= 0x7f && point < 0xa0)) return false;
  if (point == 0x200e || point == 0x200f || point == 0xfeff) return false;
  return (point < 0x2028 || point > 0x202e) && (point < 0x2066 || point > 0x2069);
}

// Bytes of the text's first character if it may be shown, else 0.
size_t character_bytes(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return may_be_shown(lead) ? 1 : 0;
  const size_t more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
  if (lead < 0xc2 || lead > 0xf4 || text.size() <= more) return 0;
  uint32_t point = lead & (0x3fu >> more);
  for (size_t k = 1; k <= more; ++k) {
    const auto next = static_cast<uint8_t>(text[k]);
    if ((next & 0xc0) != 0x80) return 0;
    point = point << 6 | (next & 0x3fu);
  }
  const uint32_t least = more == 3 ? 0x10000 : more == 2 ? 0x800 : 0x80;
  if (point < least || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) return 0;
  return may_be_shown(point) ? more + 1 : 0;
}

}  // namespace

bool is_presentable(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string presentable(std::string_view text, size_t bytes_max) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string shown;
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    if (shown.size() + (bytes == 0 ? 4 : bytes) > bytes_max) break;
    if (bytes == 0) {
      const auto byte = static_cast<uint8_t>(text[0]);
      shown += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      shown += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return shown;
}

}  // namespace peercached
