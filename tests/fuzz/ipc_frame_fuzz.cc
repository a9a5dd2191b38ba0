// Fuzzes the parser of worker requests: a header, then a body.
//
// Accepted requests are also walked to the last column entry and key byte, as the server does.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ipc/attachment.h"
#include "ipc/request.h"

using namespace peercached;
using namespace peercached::ipc;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void walk_pages(const RequestHeader& header, std::span<const std::byte> body) {
  static const Attachment attachment({1, {}, 0, 0, "", "", nullptr}, {});
  static std::vector<PageRef> pages;
  static std::vector<std::shared_ptr<Region>> held;
  static std::vector<DeviceLayout> layouts;
  const PageColumns columns = parse_pages(header, body);
  attachment.resolve(columns, pages, held, layouts);
  require(pages.size() == header.count);
  size_t keys_bytes = 0;
  unsigned sum = 0;
  for (const PageRef& page : pages) {
    for (const char c : page.key) sum += static_cast<unsigned char>(c);
    keys_bytes += page.key.size();
    require(page.memory == nullptr);
    require(!columns.has_memory || page.status != PageStatus::pending);
  }
  for (const char c : columns.parent_key) sum += static_cast<unsigned char>(c);
  require(keys_bytes == columns.keys.size());
  [[maybe_unused]] static volatile unsigned sink;
  sink = sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  RequestHeader header;
  if (size < sizeof(header)) return 0;
  std::memcpy(&header, bytes, sizeof(header));
  // The server reads as many bytes as the header announces. Here the input's end sets that number.
  const auto body = std::as_bytes(std::span(bytes + sizeof(header), size - sizeof(header)));
  header.body_bytes = static_cast<uint32_t>(body.size());
  try {
    check_header(header);
    const auto op = static_cast<Op>(header.op);
    if (op == Op::hello) {
      const Hello hello = parse_hello(body);
      require(hello.ns.size() + hello.name.size() + sizeof(HelloHead) == body.size());
    } else if (op == Op::register_region) {
      parse_region_bytes(body);
    } else if (op == Op::register_device) {
      parse_device(body);
    } else if (is_page_op(op)) {
      walk_pages(header, body);
    } else {
      require_empty(header);
    }
  } catch (const RequestError& error) {
    require(error.what()[0] != '\0');
  }
  return 0;
}
