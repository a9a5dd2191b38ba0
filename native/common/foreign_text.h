// Text that others have chosen, before people see it: in logs, in JSON, on terminals.
//
// A line feed forges a line of a log, an escape sequence writes over a terminal, a direction mark
// turns a name around, and bytes that are no UTF-8 break whoever decodes the sentence they are in.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace peercached {

// Valid UTF-8 without control and direction characters (C0, DEL, C1, line and paragraph
// separators, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069, the byte order mark).
bool is_presentable(std::string_view text);

// The same text, with \xNN for each byte of what is not presentable; cut between two characters.
std::string presentable(std::string_view text, size_t bytes_max);

}  // namespace peercached
