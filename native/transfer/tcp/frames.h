// The frames of "TCP transfer" (docs/protocol.md): their layout, without any socket code.
//
//   every frame   FrameHeader, then body_bytes of body; all numbers little-endian
//   challenge     Challenge                                holder -> reader, first
//   hello         HelloHead, node id                       reader -> holder, then
//   hello_ok      HelloOk                                  holder -> reader
//   refused       RefusedHead, text; then the socket ends  holder -> reader
//   read          ReadHead, count x PageWanted             reader -> holder
//   pages         PagesHead, count x PageStatus (u8)       holder -> reader
//   hold          HoldHead, count x Digest                 reader -> holder
//   held          HeldHead, count x u8 (0 or 1)            holder -> reader
//   lookup        LookupHead, count x Digest               reader -> owner
//   located       LocatedHead, holders x Incarnation,      owner -> reader
//                 rows x RecordRow
//   push          PushHead, count x RecordRow              holder -> owner
//   pushed        PushedHead                               owner -> holder
//   follow        FollowHead                               follower -> holder
//   followed      FollowedHead, count x RecordRow          holder -> follower, once or more
//
// A `pages` frame is followed, outside its body, by all pages with status ok, in order. Each page
// has the layout that it has in the pool: SlotHeader, then payload. The reader knows all lengths
// from its request, so it receives straight into their destinations.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/types.h"
#include "directory/feed.h"
#include "transfer/messages.h"

namespace peercached::tcp {

static_assert(std::endian::native == std::endian::little, "frames are copied, not converted");

inline constexpr uint32_t kFrameMagic = 0x54504350;  // "PCPT"
inline constexpr uint16_t kFrameVersion = 2;
inline constexpr uint32_t kPagesPerRequestMax = 256;
// Payload bytes of one request. A single page may be larger, up to kPageBytesMax.
inline constexpr uint64_t kBytesPerRequestMax = 32ull << 20;
inline constexpr size_t kNodeIdBytesMax = 255;
inline constexpr size_t kTokenBytes = 32;
inline constexpr size_t kProofBytes = 32;
inline constexpr size_t kRefusalTextBytesMax = 512;

// Limit of one hold or lookup frame; longer lists are split.
inline constexpr uint32_t kDigestsPerRequestMax = 4096;
inline constexpr size_t kRowsPerDigestMax = 4;  // of three others, and of the owner itself
// Limit of one push frame.
inline constexpr uint32_t kRowsPerRequestMax = 1024;
// Limit of one frame of the answer to a follow.
inline constexpr uint32_t kRowsPerFollowedMax = kChangesPerPart;

enum class FrameKind : uint16_t {
  hello = 1,
  hello_ok = 2,
  refused = 3,
  read = 4,
  pages = 5,
  hold = 6,
  held = 7,
  lookup = 8,
  located = 9,
  push = 10,
  pushed = 11,
  follow = 12,
  followed = 13,
  challenge = 14,
};

enum class Refusal : uint16_t {
  unauthorised = 1,       // wrong proof for this node id and incarnation
  wrong_incarnation = 2,  // the reader expects another incarnation of this daemon
  full = 3,               // no channel is free: in all, for this peer, or before hello
  bad_hello = 4,          // not a hello of this protocol version
};

struct FrameHeader {
  uint32_t magic = kFrameMagic;
  uint16_t version = kFrameVersion;
  uint16_t kind = 0;
  uint32_t body_bytes = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(FrameHeader) == 16);

using Challenge = std::array<std::byte, 16>;

struct HelloHead {
  Incarnation incarnation = 0;               // of the reader
  Incarnation expected = 0;                  // of the holder
  std::array<char, kProofBytes> proof = {};  // hello_proof.h
  uint32_t node_id_bytes = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(HelloHead) == 56);

struct HelloOk {
  Incarnation incarnation = 0;  // of the holder
};
static_assert(sizeof(HelloOk) == 8);

struct RefusedHead {
  uint16_t reason = 0;
  uint16_t text_bytes = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(RefusedHead) == 8);

struct ReadHead {
  uint64_t request = 0;
  uint32_t count = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(ReadHead) == 16);

struct PagesHead {
  uint64_t request = 0;
  uint32_t count = 0;
  uint32_t reserved = 0;
  uint64_t following_bytes = 0;  // headers and payloads behind this frame
};
static_assert(sizeof(PagesHead) == 24);

struct HoldHead {
  uint64_t request = 0;
  uint32_t count = 0;
  uint32_t hold_ms = 0;  // the holder limits it to its own maximum
};
static_assert(sizeof(HoldHead) == 16);

struct HeldHead {
  uint64_t request = 0;
  uint32_t count = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(HeldHead) == 16);

struct LookupHead {
  uint64_t request = 0;
  uint64_t view_number = 0;  // of the reader's ring, which named this owner
  uint32_t count = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(LookupHead) == 24);

struct LocatedHead {
  uint64_t request = 0;
  uint32_t rows = 0;     // their `holder` is an index into the holders
  uint16_t holders = 0;  // incarnations
  uint16_t final = 0;    // 1: digests without a row here are stored nowhere
};
static_assert(sizeof(LocatedHead) == 16);

struct PushHead {
  uint64_t request = 0;
  uint64_t from = 0, to = 0;  // positions in the holder's log
  uint32_t count = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(PushHead) == 32);

struct PushedHead {
  uint64_t request = 0;
  uint64_t position = 0;  // where the owner stands now; 0: it has no records of this holder
};
static_assert(sizeof(PushedHead) == 16);

// A node's statement about itself (transfer/tcp/life_signs.h).
struct LifeSign {
  uint64_t view_number = 0;  // the newest that it knows; 0: no sign
  uint64_t sequence = 0;     // of its own record in the membership table
  uint64_t epochs_mark = 0;  // hash of its table of namespace epochs
  uint32_t is_master = 0;    // 1: it acts as a master
  uint32_t reserved = 0;

  bool operator==(const LifeSign&) const = default;
};
static_assert(sizeof(LifeSign) == 32);

struct FollowHead {
  uint64_t request = 0;
  FeedQuestion question;
  uint32_t wait_ms = 0;  // wait for news; the holder limits it to its own maximum
  uint32_t reserved = 0;
  LifeSign sign;  // of the follower
};
static_assert(sizeof(FollowHead) == 88);

struct FollowedHead {
  uint64_t request = 0;
  uint64_t from = 0, to = 0;  // positions in the holder's log; 0: these are rows of a scan
  uint64_t lease_view = 0;    // 0: no lease
  uint32_t count = 0;
  uint16_t anew = 0;  // 1: a scan begins; all earlier records of the holder are void
  uint16_t more = 0;  // 1: another frame of this answer follows
  LifeSign sign;      // of the holder
};
static_assert(sizeof(FollowedHead) == 72);

inline constexpr size_t kRequestBodyBytesMax =
    std::max({sizeof(ReadHead) + kPagesPerRequestMax * sizeof(PageWanted),
              sizeof(HoldHead) + kDigestsPerRequestMax * sizeof(Digest),
              sizeof(LookupHead) + kDigestsPerRequestMax * sizeof(Digest),
              sizeof(PushHead) + kRowsPerRequestMax * sizeof(RecordRow), sizeof(FollowHead)});
inline constexpr size_t kFollowedBodyBytesMax =
    sizeof(FollowedHead) + kRowsPerFollowedMax * sizeof(RecordRow);
inline constexpr size_t kHelloBodyBytesMax = sizeof(HelloHead) + kNodeIdBytesMax;
// Limit of an answer to a hello, and of the challenge before it.
inline constexpr size_t kHelloReplyBodyBytesMax = sizeof(RefusedHead) + kRefusalTextBytesMax;
inline constexpr size_t preamble_bytes(size_t count) {
  return sizeof(FrameHeader) + sizeof(PagesHead) + count;
}

inline constexpr size_t held_body_bytes(size_t count) { return sizeof(HeldHead) + count; }

// The largest answer to a lookup of `count` digests.
inline constexpr size_t located_body_bytes_max(size_t count) {
  return sizeof(LocatedHead) +
         count * kRowsPerDigestMax * (sizeof(Incarnation) + sizeof(RecordRow));
}

struct Hello {
  std::string node_id;
  Incarnation incarnation = 0;
  Incarnation expected = 0;
  std::array<char, kProofBytes> proof = {};
};

// One frame of the answer to a follow.
struct Followed : FeedPart {
  LifeSign sign;  // of the holder; with the last frame
};

struct HelloReply {
  bool accepted = false;
  Incarnation incarnation = 0;  // if accepted
  uint16_t reason = 0;          // if not
  std::string text;
};

// --- Writing: each function appends one complete frame to `out`.
void append_challenge(std::vector<std::byte>& out, const Challenge& challenge);
void append_hello(std::vector<std::byte>& out, const Hello& hello);
void append_hello_ok(std::vector<std::byte>& out, Incarnation incarnation);
void append_refused(std::vector<std::byte>& out, Refusal reason, std::string_view text);
void append_read(std::vector<std::byte>& out, uint64_t request, std::span<const PageWanted> pages);
void append_pages(std::vector<std::byte>& out, uint64_t request,
                  std::span<const PageStatus> statuses, uint64_t following_bytes);
void append_hold(std::vector<std::byte>& out, uint64_t request, uint32_t hold_ms,
                 std::span<const Digest> digests);
void append_held(std::vector<std::byte>& out, uint64_t request, std::span<const uint8_t> held);
void append_lookup(std::vector<std::byte>& out, uint64_t request, uint64_t view_number,
                   std::span<const Digest> digests);
void append_located(std::vector<std::byte>& out, uint64_t request, const Located& located);
void append_push(std::vector<std::byte>& out, uint64_t request, const FeedPart& part);
void append_pushed(std::vector<std::byte>& out, uint64_t request, uint64_t position);
void append_follow(std::vector<std::byte>& out, uint64_t request, const FeedQuestion& question,
                   uint32_t wait_ms, const LifeSign& sign);
void append_followed(std::vector<std::byte>& out, uint64_t request, const Followed& part);

// --- Reading: each function returns nullptr, or the error in the frame.
//
// Accepts a header of one of `kinds`, with a body of at most `body_bytes_max`.
const char* parse_header(std::span<const std::byte> bytes, std::initializer_list<FrameKind> kinds,
                         size_t body_bytes_max, FrameHeader& header);
const char* parse_challenge(std::span<const std::byte> body, Challenge& challenge);
const char* parse_hello(std::span<const std::byte> body, Hello& hello);
const char* parse_hello_reply(FrameKind kind, std::span<const std::byte> body, HelloReply& reply);
const char* parse_read(std::span<const std::byte> body, ReadHead& head,
                       std::vector<PageWanted>& pages);
// Parses the whole preamble (header, PagesHead, statuses) of the answer to `request`. Expects as
// many statuses as pages were asked for. The caller must check that following_bytes fits them.
const char* parse_pages(std::span<const std::byte> preamble, uint64_t request,
                        std::span<PageStatus> statuses, uint64_t& following_bytes);

const char* parse_hold(std::span<const std::byte> body, HoldHead& head,
                       std::vector<Digest>& digests);
// Parses the answer to `request`. Expects as many flags as digests were sent.
const char* parse_held(std::span<const std::byte> body, uint64_t request, std::span<uint8_t> held);
const char* parse_lookup(std::span<const std::byte> body, LookupHead& head,
                         std::vector<Digest>& digests);
// Parses the answer to `request` and appends it to `located`, so several answers can be collected
// there with one table of holders. `located.final` stays true only if each answer is final.
const char* parse_located(std::span<const std::byte> body, uint64_t request, Located& located);
const char* parse_push(std::span<const std::byte> body, PushHead& head,
                       std::vector<RecordRow>& rows);
const char* parse_pushed(std::span<const std::byte> body, uint64_t request, uint64_t& position);
const char* parse_follow(std::span<const std::byte> body, FollowHead& head);
// `part.rows` points into `rows`.
const char* parse_followed(std::span<const std::byte> body, uint64_t request, Followed& part,
                           std::vector<RecordRow>& rows);

// The error in a request for these pages, or nullptr. Both sides check it.
const char* check_wanted(std::span<const PageWanted> pages);

}  // namespace peercached::tcp
