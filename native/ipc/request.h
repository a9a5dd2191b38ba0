// Parses request bodies: pure functions over untrusted bytes, without I/O. The bytes cannot inflate
// any allocation. The fuzz target feeds exactly these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "common/trace.h"
#include "ipc/wire.h"

namespace peercached::ipc {

// The error of a request: the code and the sentence that go back to the client.
class RequestError : public std::runtime_error {
 public:
  RequestError(ErrorCode code, const std::string& text) : std::runtime_error(text), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// A column inside the body. Reads by value, because it is not aligned.
template <typename T>
class Column {
 public:
  Column() = default;
  explicit Column(const std::byte* at) : at_(at) {}
  T operator[](size_t i) const {
    T value;
    std::memcpy(&value, at_ + i * sizeof(T), sizeof(T));
    return value;
  }

 private:
  const std::byte* at_ = nullptr;
};

struct Hello {
  Token token;
  uint32_t features = 0;
  std::string_view ns, name;
};

// The pages of SET and GET, or the keys of EXISTS, REMOVE, PIN and HINT (then has_memory is false).
struct PageColumns {
  uint32_t count = 0;
  bool has_memory = false;
  Column<uint32_t> key_bytes, regions;
  Column<uint64_t> offsets;
  Column<uint32_t> lengths;
  std::string_view parent_key;
  uint32_t hold_ms = 0;
  uint32_t wait_ms = 0, wait_keys = 0;
  bool wait_again = false;
  ForecastNews news;
  uint32_t pin_ms = 0;
  std::string_view envelope;  // of hints
  uint16_t page_tokens = 0, page_keys = 1;
  std::optional<CallerSpan> caller;
  std::string_view keys;     // concatenated; key_bytes must sum to their size
  uint32_t layouts = 0;      // 0: `offsets` are bytes
  uint32_t layout_rows = 0;  // of all layouts: the size of `regions`
  Column<uint32_t> rows_of_layout;
  Column<Rows> rows;
  std::span<const uint8_t> name_kinds;  // empty: no names were given
  std::span<const std::byte> names;     // concatenated
  uint16_t block_tokens = 0;
};

bool is_page_op(Op op);

// The Features that a request uses.
uint32_t features_of(const RequestHeader& header);

// Each throws RequestError. `body` must have header.body_bytes bytes and outlive the result.
void check_header(const RequestHeader& header);
Hello parse_hello(std::span<const std::byte> body);
PageColumns parse_pages(const RequestHeader& header, std::span<const std::byte> body);
uint64_t parse_region_bytes(std::span<const std::byte> body);
RegisterDevice parse_device(std::span<const std::byte> body);
void require_empty(const RequestHeader& header);

}  // namespace peercached::ipc
