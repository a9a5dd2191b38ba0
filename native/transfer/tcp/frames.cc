#include "transfer/tcp/frames.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace peercached::tcp {
namespace {

template <typename T>
void append(std::vector<std::byte>& out, const T& value) {
  const auto* from = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), from, from + sizeof(T));
}

void append_bytes(std::vector<std::byte>& out, const void* from, size_t bytes) {
  const auto* first = static_cast<const std::byte*>(from);
  out.insert(out.end(), first, first + bytes);
}

void append_header(std::vector<std::byte>& out, FrameKind kind, size_t body_bytes) {
  FrameHeader header;
  header.kind = static_cast<uint16_t>(kind);
  header.body_bytes = static_cast<uint32_t>(body_bytes);
  append(out, header);
}

// A whole frame. Its body is `head`, then the elements of `rest`.
template <typename Head, typename T = std::byte>
void append_frame(std::vector<std::byte>& out, FrameKind kind, const Head& head,
                  std::span<const T> rest = {}) {
  append_header(out, kind, sizeof head + rest.size_bytes());
  append(out, head);
  append_bytes(out, rest.data(), rest.size_bytes());
}

// The caller has checked that enough bytes are left.
template <typename T>
T take(std::span<const std::byte>& from) {
  assert(from.size() >= sizeof(T));
  T value;
  std::memcpy(&value, from.data(), sizeof(T));
  from = from.subspan(sizeof(T));
  return value;
}

// Takes the head of a request, and its list. Never trusts the count before it has been compared
// with the number of bytes.
template <typename Head, typename T>
const char* take_request(std::span<const std::byte> body, uint32_t count_max, Head& head,
                         std::vector<T>& list) {
  if (body.size() < sizeof(Head)) return "request is short";
  head = take<Head>(body);
  if (head.count == 0) return "a request for nothing";
  if (head.count > count_max) return "a request for too much at once";
  if (body.size() != head.count * sizeof(T)) return "request has a wrong length";
  list.resize(head.count);
  std::memcpy(list.data(), body.data(), body.size());
  return nullptr;
}

bool is_a_sign(const LifeSign& sign) { return sign.is_master <= 1 && sign.reserved == 0; }

}  // namespace

void append_challenge(std::vector<std::byte>& out, const Challenge& challenge) {
  append_frame(out, FrameKind::challenge, challenge);
}

void append_hello(std::vector<std::byte>& out, const Hello& hello) {
  assert(hello.node_id.size() <= kNodeIdBytesMax);
  HelloHead head;
  head.incarnation = hello.incarnation;
  head.expected = hello.expected;
  head.proof = hello.proof;
  head.node_id_bytes = static_cast<uint32_t>(hello.node_id.size());
  append_frame(out, FrameKind::hello, head, std::span<const char>(hello.node_id));
}

void append_hello_ok(std::vector<std::byte>& out, Incarnation incarnation) {
  append_frame(out, FrameKind::hello_ok, HelloOk{incarnation});
}

void append_refused(std::vector<std::byte>& out, Refusal reason, std::string_view text) {
  text = text.substr(0, kRefusalTextBytesMax);
  RefusedHead head;
  head.reason = static_cast<uint16_t>(reason);
  head.text_bytes = static_cast<uint16_t>(text.size());
  append_frame(out, FrameKind::refused, head, std::span<const char>(text));
}

void append_read(std::vector<std::byte>& out, uint64_t request, std::span<const PageWanted> pages) {
  assert(check_wanted(pages) == nullptr);
  append_frame(out, FrameKind::read, ReadHead{request, static_cast<uint32_t>(pages.size()), 0},
               pages);
}

void append_pages(std::vector<std::byte>& out, uint64_t request,
                  std::span<const PageStatus> statuses, uint64_t following_bytes) {
  const PagesHead head{request, static_cast<uint32_t>(statuses.size()), 0, following_bytes};
  append_frame(out, FrameKind::pages, head, statuses);
}

void append_hold(std::vector<std::byte>& out, uint64_t request, uint32_t hold_ms,
                 std::span<const Digest> digests) {
  assert(!digests.empty() && digests.size() <= kDigestsPerRequestMax);
  const HoldHead head{request, static_cast<uint32_t>(digests.size()), hold_ms};
  append_frame(out, FrameKind::hold, head, digests);
}

void append_held(std::vector<std::byte>& out, uint64_t request, std::span<const uint8_t> held) {
  append_frame(out, FrameKind::held, HeldHead{request, static_cast<uint32_t>(held.size()), 0},
               held);
}

void append_lookup(std::vector<std::byte>& out, uint64_t request, uint64_t view_number,
                   std::span<const Digest> digests) {
  assert(!digests.empty() && digests.size() <= kDigestsPerRequestMax);
  const LookupHead head{request, view_number, static_cast<uint32_t>(digests.size()), 0};
  append_frame(out, FrameKind::lookup, head, digests);
}

void append_located(std::vector<std::byte>& out, uint64_t request, const Located& located) {
  const std::span holders(located.holders);
  const std::span rows(located.rows);
  append_header(out, FrameKind::located,
                sizeof(LocatedHead) + holders.size_bytes() + rows.size_bytes());
  append(out, LocatedHead{request, static_cast<uint32_t>(rows.size()),
                          static_cast<uint16_t>(holders.size()), uint16_t{located.final}});
  append_bytes(out, holders.data(), holders.size_bytes());
  append_bytes(out, rows.data(), rows.size_bytes());
}

void append_push(std::vector<std::byte>& out, uint64_t request, const FeedPart& part) {
  assert(part.rows.size() <= kRowsPerRequestMax);
  const PushHead head{request, part.from, part.to, static_cast<uint32_t>(part.rows.size()), 0};
  append_frame(out, FrameKind::push, head, part.rows);
}

void append_pushed(std::vector<std::byte>& out, uint64_t request, uint64_t position) {
  append_frame(out, FrameKind::pushed, PushedHead{request, position});
}

void append_follow(std::vector<std::byte>& out, uint64_t request, const FeedQuestion& question,
                   uint32_t wait_ms, const LifeSign& sign) {
  append_frame(out, FrameKind::follow, FollowHead{request, question, wait_ms, 0, sign});
}

void append_followed(std::vector<std::byte>& out, uint64_t request, const Followed& part) {
  assert(part.rows.size() <= kRowsPerFollowedMax);
  const FollowedHead head{request,
                          part.from,
                          part.to,
                          part.lease_view,
                          static_cast<uint32_t>(part.rows.size()),
                          uint16_t{part.anew},
                          uint16_t{part.more},
                          part.sign};
  append_frame(out, FrameKind::followed, head, part.rows);
}

const char* parse_header(std::span<const std::byte> bytes, std::initializer_list<FrameKind> kinds,
                         size_t body_bytes_max, FrameHeader& header) {
  if (bytes.size() < sizeof(FrameHeader)) return "frame header is short";
  header = take<FrameHeader>(bytes);
  if (header.magic != kFrameMagic) return "not a peercached transfer frame (wrong magic)";
  if (header.version != kFrameVersion) return "another protocol version: upgrade the older side";
  if (header.reserved != 0) return "reserved bits are set in the frame header";
  bool known = std::any_of(kinds.begin(), kinds.end(), [&](FrameKind kind) {
    return header.kind == static_cast<uint16_t>(kind);
  });
  if (!known) return "a frame of this kind is not expected here";
  if (header.body_bytes > body_bytes_max) return "frame body is too long";
  return nullptr;
}

const char* parse_challenge(std::span<const std::byte> body, Challenge& challenge) {
  if (body.size() != challenge.size()) return "challenge has a wrong length";
  std::copy(body.begin(), body.end(), challenge.begin());
  return nullptr;
}

const char* parse_hello(std::span<const std::byte> body, Hello& hello) {
  if (body.size() < sizeof(HelloHead)) return "hello is short";
  auto head = take<HelloHead>(body);
  if (head.node_id_bytes == 0 || head.node_id_bytes > kNodeIdBytesMax ||
      head.node_id_bytes != body.size()) {
    return "hello's node id has a wrong length";
  }
  if (head.incarnation == 0) return "hello's incarnation is 0";
  if (head.reserved != 0) return "reserved bits are set in the hello";
  hello.incarnation = head.incarnation;
  hello.expected = head.expected;
  hello.proof = head.proof;
  hello.node_id.assign(reinterpret_cast<const char*>(body.data()), body.size());
  return nullptr;
}

const char* parse_hello_reply(FrameKind kind, std::span<const std::byte> body, HelloReply& reply) {
  if (kind == FrameKind::hello_ok) {
    if (body.size() != sizeof(HelloOk)) return "hello_ok has a wrong length";
    reply.accepted = true;
    reply.incarnation = take<HelloOk>(body).incarnation;
    return nullptr;
  }
  if (body.size() < sizeof(RefusedHead)) return "refusal is short";
  auto head = take<RefusedHead>(body);
  if (head.text_bytes != body.size()) return "refusal's text has a wrong length";
  if (head.reserved != 0) return "reserved bits are set in the refusal";
  reply.accepted = false;
  reply.reason = head.reason;
  reply.text.assign(reinterpret_cast<const char*>(body.data()), body.size());
  return nullptr;
}

const char* check_wanted(std::span<const PageWanted> pages) {
  if (pages.empty()) return "a request for no pages";
  if (pages.size() > kPagesPerRequestMax) return "a request for too many pages";
  uint64_t total_bytes = 0;
  for (const PageWanted& page : pages) {
    if (page.length == 0 || page.length > kPageBytesMax) return "a page length out of range";
    if (page.reserved != 0) return "reserved bits are set in a page of a request";
    total_bytes += page.length;
  }
  if (pages.size() > 1 && total_bytes > kBytesPerRequestMax) return "a request for too many bytes";
  return nullptr;
}

const char* parse_read(std::span<const std::byte> body, ReadHead& head,
                       std::vector<PageWanted>& pages) {
  if (const char* wrong = take_request(body, kPagesPerRequestMax, head, pages)) return wrong;
  if (head.reserved != 0) return "reserved bits are set in a read request";
  return check_wanted(pages);
}

const char* parse_hold(std::span<const std::byte> body, HoldHead& head,
                       std::vector<Digest>& digests) {
  return take_request(body, kDigestsPerRequestMax, head, digests);
}

const char* parse_held(std::span<const std::byte> body, uint64_t request, std::span<uint8_t> held) {
  if (body.size() != held_body_bytes(held.size())) return "answer to a hold has a wrong length";
  auto head = take<HeldHead>(body);
  if (head.request != request) return "answer to another hold";
  if (head.count != held.size()) return "answer about another number of held pages";
  if (head.reserved != 0) return "reserved bits are set in an answer to a hold";
  for (size_t i = 0; i < held.size(); ++i) {
    const auto flag = static_cast<uint8_t>(body[i]);
    if (flag > 1) return "a page that is neither held nor not";
    held[i] = flag;
  }
  return nullptr;
}

const char* parse_lookup(std::span<const std::byte> body, LookupHead& head,
                         std::vector<Digest>& digests) {
  if (const char* wrong = take_request(body, kDigestsPerRequestMax, head, digests)) return wrong;
  return head.reserved == 0 ? nullptr : "reserved bits are set in a lookup";
}

const char* parse_located(std::span<const std::byte> body, uint64_t request, Located& located) {
  if (body.size() < sizeof(LocatedHead)) return "answer to a lookup is short";
  auto head = take<LocatedHead>(body);
  if (head.request != request) return "answer to another lookup";
  if (head.final > 1) return "answer to a lookup that is neither final nor not";
  const size_t before = located.holders.size();
  const size_t holder_bytes = head.holders * sizeof(Incarnation);
  if (body.size() != holder_bytes + uint64_t{head.rows} * sizeof(RecordRow)) {
    return "answer to a lookup has a wrong length";
  }
  if (before + head.holders > kNoHolder) return "answers to a lookup name too many holders";
  located.final = located.final && head.final == 1;
  located.holders.resize(before + head.holders);
  if (holder_bytes != 0) {
    std::memcpy(located.holders.data() + before, body.data(), holder_bytes);
  }
  body = body.subspan(holder_bytes);
  for (uint32_t i = 0; i < head.rows; ++i) {
    auto row = take<RecordRow>(body);
    if (row.holder >= head.holders) return "a record of a holder that is not in the answer";
    if ((row.flags & ~kRecordResident) != 0) return "a record with flags that an owner never gives";
    row.holder = static_cast<HolderIndex>(before + row.holder);
    located.rows.push_back(row);
  }
  return nullptr;
}

const char* parse_push(std::span<const std::byte> body, PushHead& head,
                       std::vector<RecordRow>& rows) {
  if (const char* wrong = take_request(body, kRowsPerRequestMax, head, rows)) return wrong;
  if (head.reserved != 0) return "reserved bits are set in a push";
  return head.from == 0 || head.to < head.from ? "a push from nowhere" : nullptr;
}

const char* parse_pushed(std::span<const std::byte> body, uint64_t request, uint64_t& position) {
  if (body.size() != sizeof(PushedHead)) return "answer to a push has a wrong length";
  auto head = take<PushedHead>(body);
  if (head.request != request) return "answer to another push";
  position = head.position;
  return nullptr;
}

const char* parse_follow(std::span<const std::byte> body, FollowHead& head) {
  if (body.size() != sizeof(FollowHead)) return "follow has a wrong length";
  head = take<FollowHead>(body);
  if (head.reserved != 0) return "reserved bits are set in a follow";
  return is_a_sign(head.sign) ? nullptr : "follow with a sign of life that cannot be";
}

const char* parse_followed(std::span<const std::byte> body, uint64_t request, Followed& part,
                           std::vector<RecordRow>& rows) {
  if (body.size() < sizeof(FollowedHead)) return "answer to a follow is short";
  auto head = take<FollowedHead>(body);
  if (head.request != request) return "answer to another follow";
  if (head.anew > 1 || head.more > 1) return "answer to a follow with flags that nobody knows";
  if (head.count > kRowsPerFollowedMax) return "answer to a follow with too many records";
  if (!is_a_sign(head.sign)) return "answer to a follow with a sign of life that cannot be";
  if (body.size() != head.count * sizeof(RecordRow)) return "answer to a follow has a wrong length";
  rows.resize(head.count);
  if (head.count != 0) std::memcpy(rows.data(), body.data(), body.size());
  part = {{rows, head.from, head.to, head.anew == 1, head.more == 1, head.lease_view}, head.sign};
  return nullptr;
}

const char* parse_pages(std::span<const std::byte> preamble, uint64_t request,
                        std::span<PageStatus> statuses, uint64_t& following_bytes) {
  assert(preamble.size() == preamble_bytes(statuses.size()));
  FrameHeader header;
  const size_t body_bytes = sizeof(PagesHead) + statuses.size();
  const char* wrong = parse_header(preamble, {FrameKind::pages}, body_bytes, header);
  if (wrong != nullptr) return wrong;
  if (header.body_bytes != body_bytes) return "answer's preamble has a wrong length";
  preamble = preamble.subspan(sizeof(FrameHeader));
  auto head = take<PagesHead>(preamble);
  if (head.request != request) return "answer to another request";
  if (head.count != statuses.size()) return "answer about another number of pages";
  if (head.reserved != 0) return "reserved bits are set in an answer";
  for (size_t i = 0; i < statuses.size(); ++i) {
    auto status = static_cast<PageStatus>(preamble[i]);
    if (status != PageStatus::ok && status != PageStatus::stale) {
      return "answer with a page status that a holder never gives";
    }
    statuses[i] = status;
  }
  following_bytes = head.following_bytes;
  return nullptr;
}

}  // namespace peercached::tcp
