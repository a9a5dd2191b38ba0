// Fuzzes the parsers of both ends of a TCP channel: the holder's (hello, read, hold, lookup,
// push, follow), and the reader's of the answers.
//
// The first byte chooses the parser. An accepted frame must stay within the protocol's bounds.
// Written and parsed again, it must not change.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "transfer/tcp/frames.h"

using namespace peercached;
using namespace peercached::tcp;

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

std::span<const std::byte> body_of(const std::vector<std::byte>& frame) {
  return std::span(frame).subspan(sizeof(FrameHeader));
}

// Nothing is dropped: reserved fields are 0 or refused.
void require_same(const std::vector<std::byte>& again, std::span<const std::byte> body) {
  require(body_of(again).size() == body.size());
  require(std::memcmp(body_of(again).data(), body.data(), body.size()) == 0);
}

void fuzz_hello(std::span<const std::byte> body) {
  Hello hello;
  if (parse_hello(body, hello) != nullptr) return;
  require(hello.node_id.size() <= kNodeIdBytesMax);
  std::vector<std::byte> again;
  append_hello(again, hello);
  Hello same;
  require(parse_hello(body_of(again), same) == nullptr);
  require(same.node_id == hello.node_id && same.incarnation == hello.incarnation);
  require(same.proof == hello.proof);
}

void fuzz_read(std::span<const std::byte> body) {
  ReadHead head;
  std::vector<PageWanted> pages;
  if (parse_read(body, head, pages) != nullptr) return;
  require(!pages.empty() && pages.size() <= kPagesPerRequestMax);
  require(check_wanted(pages) == nullptr);
  std::vector<std::byte> again;
  append_read(again, head.request, pages);
  require_same(again, body);
}

void fuzz_hello_reply(FrameKind kind, std::span<const std::byte> body) {
  HelloReply reply;
  if (parse_hello_reply(kind, body, reply) != nullptr) return;
  require(reply.text.size() <= kRefusalTextBytesMax);
}

void fuzz_pages(std::span<const std::byte> preamble) {
  const size_t fixed = preamble_bytes(0);
  if (preamble.size() < fixed) return;
  uint64_t request = 0;
  std::memcpy(&request, preamble.data() + sizeof(FrameHeader), sizeof request);
  std::vector<PageStatus> statuses(preamble.size() - fixed);
  uint64_t following_bytes = 0;
  parse_pages(preamble, request, statuses, following_bytes);
}

void fuzz_hold(std::span<const std::byte> body) {
  HoldHead head;
  std::vector<Digest> digests;
  if (parse_hold(body, head, digests) != nullptr) return;
  require(!digests.empty() && digests.size() <= kDigestsPerRequestMax);
  std::vector<std::byte> again;
  append_hold(again, head.request, head.hold_ms, digests);
  require_same(again, body);
}

void fuzz_held(std::span<const std::byte> body) {
  if (body.size() < held_body_bytes(0)) return;
  uint64_t request = 0;
  std::memcpy(&request, body.data(), sizeof request);
  std::vector<uint8_t> held(body.size() - held_body_bytes(0));
  if (parse_held(body, request, held) != nullptr) return;
  for (uint8_t flag : held) require(flag <= 1);
}

void fuzz_lookup(std::span<const std::byte> body) {
  LookupHead head;
  std::vector<Digest> digests;
  if (parse_lookup(body, head, digests) != nullptr) return;
  require(!digests.empty() && digests.size() <= kDigestsPerRequestMax);
  std::vector<std::byte> again;
  append_lookup(again, head.request, head.view_number, digests);
  require_same(again, body);
}

void fuzz_located(std::span<const std::byte> body) {
  uint64_t request = 0;
  if (body.size() < sizeof request) return;
  std::memcpy(&request, body.data(), sizeof request);
  Located located{.final = true, .holders = {1, 2, 3}, .rows = {}};
  if (parse_located(body, request, located) != nullptr) return;
  for (const RecordRow& row : located.rows) {
    require(row.holder >= 3 && row.holder < located.holders.size());
  }
}

void fuzz_push(std::span<const std::byte> body) {
  PushHead head;
  std::vector<RecordRow> rows;
  if (parse_push(body, head, rows) != nullptr) return;
  require(!rows.empty() && rows.size() <= kRowsPerRequestMax);
  require(head.from != 0 && head.from <= head.to);
  std::vector<std::byte> again;
  append_push(again, head.request, {.rows = rows, .from = head.from, .to = head.to});
  require_same(again, body);
}

void fuzz_pushed(std::span<const std::byte> body) {
  uint64_t request = 0;
  if (body.size() < sizeof request) return;
  std::memcpy(&request, body.data(), sizeof request);
  uint64_t position = 0;
  if (parse_pushed(body, request, position) != nullptr) return;
  std::vector<std::byte> again;
  append_pushed(again, request, position);
  require_same(again, body);
}

void fuzz_follow(std::span<const std::byte> body) {
  FollowHead head;
  if (parse_follow(body, head) != nullptr) return;
  std::vector<std::byte> again;
  append_follow(again, head.request, head.question, head.wait_ms, head.sign);
  require_same(again, body);
}

void fuzz_followed(std::span<const std::byte> body) {
  uint64_t request = 0;
  if (body.size() < sizeof request) return;
  std::memcpy(&request, body.data(), sizeof request);
  Followed part;
  std::vector<RecordRow> rows;
  if (parse_followed(body, request, part, rows) != nullptr) return;
  require(part.rows.size() <= kRowsPerFollowedMax);
  std::vector<std::byte> again;
  append_followed(again, request, part);
  require_same(again, body);
}

void fuzz_header(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(FrameHeader)) return;
  FrameHeader header;
  if (parse_header(
          bytes.first(sizeof(FrameHeader)),
          {FrameKind::read, FrameKind::hold, FrameKind::lookup, FrameKind::push, FrameKind::follow},
          kRequestBodyBytesMax, header) == nullptr) {
    require(header.body_bytes <= kRequestBodyBytesMax);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span bytes(reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  switch (data[0] % 14) {
    case 0:
      fuzz_hello(bytes);
      break;
    case 1:
      fuzz_read(bytes);
      break;
    case 2:
      fuzz_hello_reply(FrameKind::hello_ok, bytes);
      break;
    case 3:
      fuzz_hello_reply(FrameKind::refused, bytes);
      break;
    case 4:
      fuzz_pages(bytes);
      break;
    case 5:
      fuzz_hold(bytes);
      break;
    case 6:
      fuzz_held(bytes);
      break;
    case 7:
      fuzz_lookup(bytes);
      break;
    case 8:
      fuzz_located(bytes);
      break;
    case 9:
      fuzz_push(bytes);
      break;
    case 10:
      fuzz_pushed(bytes);
      break;
    case 11:
      fuzz_follow(bytes);
      break;
    case 12:
      fuzz_followed(bytes);
      break;
    default:
      fuzz_header(bytes);
  }
  return 0;
}
