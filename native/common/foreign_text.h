// Makes text from others safe to show: in logs, in JSON, on terminals.
//
// A line feed forges a line of a log. An escape sequence writes over a terminal. A direction mark
// turns a name around. Bytes that are not UTF-8 break the reader of the whole sentence.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace peercached {

// Valid UTF-8 without control and direction characters (C0, DEL, C1, line and paragraph
// separators, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069, the byte order mark).
bool is_presentable(std::string_view text);

// The same text, with \xNN for each byte that is not presentable. Cut between two characters, to at
// most `bytes_max` bytes.
std::string presentable(std::string_view text, size_t bytes_max);

}  // namespace peercached
