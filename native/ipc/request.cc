#include "ipc/request.h"

#include "common/foreign_text.h"
#include "common/page_name.h"
#include "common/types.h"

namespace peercached::ipc {
namespace {

[[noreturn]] void bad_frame(const std::string& text) {
  throw RequestError(ErrorCode::bad_frame, text);
}

// Cuts the last value off the body.
template <typename T>
T take_last(std::span<const std::byte>& body, const char* what) {
  if (body.size() < sizeof(T)) {
    bad_frame("a body of " + std::to_string(body.size()) + " bytes has no " + what);
  }
  const T last = Column<T>(body.data() + body.size() - sizeof(T))[0];
  body = body.first(body.size() - sizeof(T));
  return last;
}

// Cuts a column off the end of the body.
template <typename T>
Column<T> take_column(std::span<const std::byte>& body, uint64_t count, const char* what) {
  if (count == 0 || count > kRowsMax || count * sizeof(T) > body.size()) {
    bad_frame(std::to_string(count) + " " + what + ": 1 to " + std::to_string(kRowsMax) +
              ", inside the body");
  }
  body = body.first(body.size() - count * sizeof(T));
  return Column<T>(body.data() + body.size());
}

void take_layouts(std::span<const std::byte>& body, PageColumns& pages) {
  pages.layouts = take_last<uint32_t>(body, "count of layouts");
  pages.rows_of_layout = take_column<uint32_t>(body, pages.layouts, "layouts");
  uint64_t rows = 0;
  for (uint32_t i = 0; i < pages.layouts; ++i) {
    if (pages.rows_of_layout[i] == 0) bad_frame("a layout has no rows");
    rows += pages.rows_of_layout[i];
  }
  pages.rows = take_column<Rows>(body, rows, "rows of layouts");
  pages.layout_rows = static_cast<uint32_t>(rows);
  for (uint32_t i = 0; i < pages.layout_rows; ++i) {
    if (pages.rows[i].reserved != 0) bad_frame("the last field of rows is not 0");
  }
}

void take_names(std::span<const std::byte>& body, PageColumns& pages) {
  const auto tokens = take_last<uint32_t>(body, "tokens of a block");
  if (tokens > UINT16_MAX) {
    bad_frame("a block of " + std::to_string(tokens) + " tokens: at most " +
              std::to_string(UINT16_MAX) + " can be told");
  }
  pages.block_tokens = static_cast<uint16_t>(tokens);
  if (body.size() < pages.count) {
    bad_frame("a body of " + std::to_string(body.size()) + " bytes has no kinds of " +
              std::to_string(pages.count) + " names");
  }
  const auto kinds = body.last(pages.count);
  pages.name_kinds = {reinterpret_cast<const uint8_t*>(kinds.data()), kinds.size()};
  body = body.first(body.size() - pages.count);
  uint64_t bytes = 0;
  for (const uint8_t kind : pages.name_kinds) {
    if (name_bytes(kind) == kNotAKind)
      bad_frame("a name of kind " + std::to_string(kind) + ": there is none");
    bytes += name_bytes(kind);
  }
  if (bytes > body.size()) {
    bad_frame("names of " + std::to_string(bytes) + " bytes: the body has " +
              std::to_string(body.size()) + " left for them");
  }
  pages.names = body.last(bytes);
  body = body.first(body.size() - bytes);
}

CallerSpan take_span(std::span<const std::byte>& body) {
  const auto span = take_last<CallerSpan>(body, "span");
  if (span.trace_id == decltype(span.trace_id){} || span.span_id == decltype(span.span_id){}) {
    bad_frame("the number of a trace or a span is 0: W3C Trace Context forbids that");
  }
  return span;
}

std::string_view take_envelope(std::span<const std::byte>& body) {
  const auto size = take_last<uint32_t>(body, "size of an envelope");
  if (size > kEnvelopeBytesMax || size > body.size()) {
    bad_frame("an envelope of " + std::to_string(size) + " bytes: at most " +
              std::to_string(kEnvelopeBytesMax) + ", inside the body");
  }
  const auto envelope = body.last(size);
  body = body.first(body.size() - size);
  return {reinterpret_cast<const char*>(envelope.data()), envelope.size()};
}

}  // namespace

bool is_page_op(Op op) {
  return op == Op::set || op == Op::get || op == Op::exists || op == Op::remove || op == Op::pin ||
         op == Op::hint;
}

uint32_t features_of(const RequestHeader& header) {
  const auto op = static_cast<Op>(header.op);
  return (header.flags & kFlagSpan ? kFeatureSpan : 0u) | (op == Op::pin ? kFeaturePins : 0u) |
         (op == Op::hint ? kFeatureHint : 0u) |
         (op == Op::exists && header.flags & kFlagHere ? kFeatureHere : 0u) |
         (op == Op::register_device || header.flags & kFlagLayout ? kFeatureDevice : 0u) |
         (op == Op::exists && header.flags & kFlagWait ? kFeatureWait : 0u) |
         (op == Op::exists && header.flags & kFlagForecast ? kFeatureForecast : 0u) |
         (op == Op::exists && header.flags & kFlagCold ? kFeatureCold : 0u) |
         (header.flags & kFlagNames ? kFeatureNames : 0u) | (header.took != 0 ? kFeatureTook : 0u);
}

void check_header(const RequestHeader& header) {
  if (header.body_bytes > kBodyBytesMax) {
    bad_frame("a body of " + std::to_string(header.body_bytes) + " bytes: at most " +
              std::to_string(kBodyBytesMax) + " are taken, split the batch");
  }
  if (took_op(header) == TookOp::none && header.took != 0) {
    bad_frame("the time of an earlier call is " + std::to_string(header.took) + ", of no call");
  }
  const auto op = static_cast<Op>(header.op);
  if (is_page_op(op) && header.count > kPagesMax) {
    bad_frame("a count of " + std::to_string(header.count) + " pages: at most " +
              std::to_string(kPagesMax) + " are taken, split the batch");
  }
  // For UNREGISTER, count is a region id, so any number is valid.
  if (!is_page_op(op) && op != Op::unregister_region && header.count != 0) {
    bad_frame("op " + std::to_string(header.op) + " has a count of " +
              std::to_string(header.count) + ": it has no pages, so it must be 0");
  }
  unsigned known = is_page_op(op) && op != Op::hint ? kFlagParent : 0;
  if (op == Op::exists) {
    known |= kFlagBitmap;
    known |= header.flags & kFlagHere
                 ? kFlagHere
                 : kFlagHold | kFlagPage | kFlagLengths | kFlagWait | kFlagForecast;
    if (header.flags & kFlagForecast) known |= kFlagCold;
  }
  if (op == Op::get) known |= kFlagSpan;
  if (op == Op::get || op == Op::set) known |= kFlagLayout;
  if (op == Op::set) known |= kFlagNames;
  if (op == Op::get && header.flags & kFlagLayout) known |= kFlagStages;
  if (op == Op::pin) known |= kFlagPrefix | kFlagHere;
  if ((header.flags & ~known) != 0) {
    bad_frame("flags " + std::to_string(header.flags) + " are not known for op " +
              std::to_string(header.op));
  }
}

Hello parse_hello(std::span<const std::byte> body) {
  if (body.size() < sizeof(HelloHead)) {
    bad_frame("HELLO has " + std::to_string(body.size()) + " bytes: it begins with " +
              std::to_string(sizeof(HelloHead)));
  }
  HelloHead head;
  std::memcpy(&head, body.data(), sizeof(head));
  if (head.protocol_version != kProtocolVersion) {
    throw RequestError(ErrorCode::bad_version,
                       "the client speaks protocol " + std::to_string(head.protocol_version) +
                           ", this daemon speaks " + std::to_string(kProtocolVersion) +
                           ": install the same version of both");
  }
  const uint64_t names_bytes = uint64_t{head.namespace_bytes} + head.name_bytes;
  if (names_bytes != body.size() - sizeof(head)) {
    bad_frame("HELLO announces " + std::to_string(names_bytes) + " bytes of names and carries " +
              std::to_string(body.size() - sizeof(head)));
  }
  if (head.namespace_bytes > kNamespaceBytesMax) {
    throw RequestError(ErrorCode::bad_value,
                       "a namespace of " + std::to_string(head.namespace_bytes) +
                           " bytes: at most " + std::to_string(kNamespaceBytesMax) + " are taken");
  }
  if (head.name_bytes > kNameBytesMax) {
    throw RequestError(ErrorCode::bad_value, "a client name of " + std::to_string(head.name_bytes) +
                                                 " bytes: at most " +
                                                 std::to_string(kNameBytesMax) + " are taken");
  }
  Hello hello;
  hello.token = head.token;
  hello.features = head.features;
  const auto* names = reinterpret_cast<const char*>(body.data() + sizeof(head));
  hello.ns = {names, head.namespace_bytes};
  hello.name = {names + head.namespace_bytes, head.name_bytes};
  if (!is_presentable(hello.ns) || !is_presentable(hello.name)) {
    throw RequestError(
        ErrorCode::bad_value,
        "namespace and client name must be UTF-8 without control and direction characters");
  }
  return hello;
}

PageColumns parse_pages(const RequestHeader& header, std::span<const std::byte> body) {
  const auto op = static_cast<Op>(header.op);
  PageColumns pages;
  pages.count = header.count;
  pages.has_memory = op == Op::set || op == Op::get;

  // At most 65 536 pages of 20 bytes: no sum here can overflow 64 bits.
  const uint64_t n = header.count;
  const bool has_parent = (header.flags & kFlagParent) != 0;
  if ((header.flags & kFlagSpan) != 0) pages.caller = take_span(body);
  if ((header.flags & kFlagNames) != 0) take_names(body, pages);
  if ((header.flags & kFlagLayout) != 0) take_layouts(body, pages);
  const uint64_t regions = pages.layouts == 0 ? n : pages.layout_rows;
  const uint64_t columns_bytes = pages.has_memory ? 16 * n + 4 * regions : 4 * n;
  if ((header.flags & kFlagForecast) != 0)
    pages.news = take_last<ForecastNews>(body, "news of forecasts");
  if ((header.flags & kFlagWait) != 0) {
    const auto wait_keys = take_last<uint32_t>(body, "keys to wait for");
    pages.wait_keys = wait_keys & ~kWaitAgain;
    pages.wait_again = (wait_keys & kWaitAgain) != 0;
    pages.wait_ms = std::min(take_last<uint32_t>(body, "time to wait"), kWaitMsMax);
  }
  if ((header.flags & kFlagPage) != 0) {
    const uint32_t page = take_last<uint32_t>(body, "tokens and keys of a page");
    pages.page_tokens = static_cast<uint16_t>(page);
    pages.page_keys = static_cast<uint16_t>(page >> 16);
  }
  if ((header.flags & kFlagHold) != 0) {
    pages.hold_ms = std::min(take_last<uint32_t>(body, "hold time"), kHoldMsMax);
  }
  if (op == Op::hint) pages.envelope = take_envelope(body);
  if (op == Op::pin) pages.pin_ms = std::min(take_last<uint32_t>(body, "time of a pin"), kPinMsMax);
  uint64_t used = columns_bytes + (has_parent ? 4 : 0);
  if (body.size() < used) {
    bad_frame("a body of " + std::to_string(body.size()) + " bytes cannot hold the columns of " +
              std::to_string(n) + " pages, " + std::to_string(used) + " bytes");
  }
  const std::byte* at = body.data();
  pages.key_bytes = Column<uint32_t>(at);
  if (pages.has_memory) {
    pages.regions = Column<uint32_t>(at + 4 * n);
    pages.offsets = Column<uint64_t>(at + 4 * n + 4 * regions);
    pages.lengths = Column<uint32_t>(at + 12 * n + 4 * regions);
  }
  if (has_parent) {
    const uint32_t parent_bytes = Column<uint32_t>(at + columns_bytes)[0];
    if (parent_bytes == 0 || parent_bytes > kKeyBytesMax || parent_bytes > body.size() - used) {
      bad_frame("a parent key of " + std::to_string(parent_bytes) + " bytes: 1 to " +
                std::to_string(kKeyBytesMax) + ", inside the body");
    }
    pages.parent_key = {reinterpret_cast<const char*>(at + used), parent_bytes};
    used += parent_bytes;
  }
  pages.keys = {reinterpret_cast<const char*>(at + used), body.size() - used};
  uint64_t keys_bytes = 0;
  for (uint64_t i = 0; i < n; ++i) keys_bytes += pages.key_bytes[i];
  if (keys_bytes != pages.keys.size()) {
    bad_frame("key lengths add up to " + std::to_string(keys_bytes) + " bytes, the body has " +
              std::to_string(pages.keys.size()) + " left for keys");
  }
  return pages;
}

uint64_t parse_region_bytes(std::span<const std::byte> body) {
  if (body.size() != sizeof(uint64_t)) {
    bad_frame("REGISTER has " + std::to_string(body.size()) + " bytes: it is a size of 8 bytes");
  }
  return Column<uint64_t>(body.data())[0];
}

RegisterDevice parse_device(std::span<const std::byte> body) {
  if (body.size() != sizeof(RegisterDevice)) {
    bad_frame("REGISTER_DEVICE has " + std::to_string(body.size()) + " bytes: it has " +
              std::to_string(sizeof(RegisterDevice)));
  }
  const auto device = Column<RegisterDevice>(body.data())[0];
  if (device.reserved != 0) bad_frame("the reserved field of REGISTER_DEVICE is not 0");
  return device;
}

void require_empty(const RequestHeader& header) {
  if (header.body_bytes != 0) {
    bad_frame("op " + std::to_string(header.op) + " has no body, this one has " +
              std::to_string(header.body_bytes) + " bytes");
  }
}

}  // namespace peercached::ipc
