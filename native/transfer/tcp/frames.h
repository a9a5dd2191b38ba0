// The frames of "TCP transfer" (docs/protocol.md): how they look, and nothing about sockets.
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
//   publish       PublishHead, count x RecordRow           holder -> owner
//   published     PublishedHead                            owner -> holder
//   follow        FollowHead                               follower -> holder
//   followed      FollowedHead, count x RecordRow          holder -> follower, once or more
//
// Behind a `pages` frame come, outside its body, the bytes of the pages whose status is ok, in
// order, each as it lies in the pool: SlotHeader, then payload. The reader knows all lengths
// from its own request, so it can receive straight into their destinations.
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

namespace peercached::tcp {

static_assert(std::endian::native == std::endian::little, "frames are copied, not converted");

inline constexpr uint32_t kFrameMagic = 0x54504350;  // "PCPT"
inline constexpr uint16_t kFrameVersion = 1;
inline constexpr uint32_t kPagesPerRequestMax = 256;
// Of payload, in one request; a single page may be larger, up to kPageBytesMax.
inline constexpr uint64_t kBytesPerRequestMax = 32ull << 20;
inline constexpr size_t kNodeIdBytesMax = 255;
inline constexpr size_t kTokenBytes = 32;
inline constexpr size_t kProofBytes = 32;
inline constexpr size_t kRefusalTextBytesMax = 512;

// Of one hold or lookup frame; more go in several.
inline constexpr uint32_t kDigestsPerRequestMax = 4096;
inline constexpr size_t kRowsPerDigestMax = 3;
// Of one publish frame; more go in several.
inline constexpr uint32_t kRowsPerRequestMax = 1024;
// Of one frame of the answer to a follow.
inline constexpr uint32_t kRowsPerFollowedMax = 4096;

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
  publish = 10,
  published = 11,
  follow = 12,
  followed = 13,
  challenge = 14,
};

enum class Refusal : uint16_t {
  unauthorised = 1,       // the proof is not that of this node id and incarnation
  wrong_incarnation = 2,  // the reader expects another start of this daemon
  full = 3,               // all channels of this daemon are taken
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

struct PageWanted {
  uint64_t offset = 0;
  Digest digest;
  Generation generation = 0;
  uint32_t length = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(PageWanted) == 40);

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
  uint32_t hold_ms = 0;  // longer times are cut to the holder's maximum
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
  uint64_t view_number = 0;  // of the reader, by whose ring it asks this owner
  uint32_t count = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(LookupHead) == 24);

struct LocatedHead {
  uint64_t request = 0;
  uint32_t rows = 0;     // their `holder` is an index in the table of holders
  uint16_t holders = 0;  // incarnations
  uint16_t final = 0;    // 1: what has no row here is nowhere
};
static_assert(sizeof(LocatedHead) == 16);

struct PublishHead {
  uint64_t request = 0;
  uint64_t fence = 0;  // of the holder, which may have raised it since (engine/fences.h)
  uint32_t count = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(PublishHead) == 24);

struct PublishedHead {
  uint64_t request = 0;
  uint32_t taken = 0;  // 1: all records are in the owner's shard
  uint32_t reserved = 0;
};
static_assert(sizeof(PublishedHead) == 16);

// What a node says of itself (transfer/tcp/life_signs.h).
struct LifeSign {
  uint64_t view_number = 0;  // the newest it knows; 0: it says nothing
  uint64_t sequence = 0;     // of its own record in the membership's table
  uint64_t epochs_mark = 0;  // of its table of namespace epochs
  uint32_t in_office = 0;    // 1: it acts as a master
  uint32_t reserved = 0;

  bool operator==(const LifeSign&) const = default;
};
static_assert(sizeof(LifeSign) == 32);

struct FollowHead {
  uint64_t request = 0;
  uint64_t position = 0;  // in the holder's feed, as its last answer had it; 0: none yet
  uint32_t wait_ms = 0;   // for news; longer times are cut to the holder's maximum
  uint32_t reserved = 0;
  LifeSign sign;  // of the follower
};
static_assert(sizeof(FollowHead) == 56);

struct FollowedHead {
  uint64_t request = 0;
  uint64_t position = 0;  // behind these rows, where `more` is 0
  uint32_t count = 0;
  uint16_t anew = 0;  // 1: what the holder told before is void
  uint16_t more = 0;  // 1: the answer goes on in another frame
  LifeSign sign;      // of the holder
};
static_assert(sizeof(FollowedHead) == 56);

inline constexpr size_t kReadBodyBytesMax =
    sizeof(ReadHead) + kPagesPerRequestMax * sizeof(PageWanted);
inline constexpr size_t kHoldBodyBytesMax =
    sizeof(HoldHead) + kDigestsPerRequestMax * sizeof(Digest);
inline constexpr size_t kLookupBodyBytesMax =
    sizeof(LookupHead) + kDigestsPerRequestMax * sizeof(Digest);
inline constexpr size_t kPublishBodyBytesMax =
    sizeof(PublishHead) + kRowsPerRequestMax * sizeof(RecordRow);
inline constexpr size_t kRequestBodyBytesMax =
    std::max({kReadBodyBytesMax, kHoldBodyBytesMax, kLookupBodyBytesMax, kPublishBodyBytesMax});
inline constexpr size_t kFollowedBodyBytesMax =
    sizeof(FollowedHead) + kRowsPerFollowedMax * sizeof(RecordRow);
inline constexpr size_t kHelloBodyBytesMax = sizeof(HelloHead) + kNodeIdBytesMax;
// Of an answer to a hello, or of what comes before it.
inline constexpr size_t kHelloReplyBodyBytesMax = sizeof(RefusedHead) + kRefusalTextBytesMax;
inline constexpr size_t preamble_bytes(size_t count) {
  return sizeof(FrameHeader) + sizeof(PagesHead) + count;
}

inline constexpr size_t held_body_bytes(size_t count) { return sizeof(HeldHead) + count; }

// Of a lookup for so many digests, at most.
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

// Of one owner about some digests.
struct Located {
  bool final = false;  // what has no row is nowhere
  std::vector<Incarnation> holders;
  std::vector<RecordRow> rows;  // `holder` is an index in `holders`
};

// A part of the answer to a follow: changes of a holder's records, in order.
struct Followed {
  std::span<const RecordRow> rows;
  uint64_t position = 0;
  bool anew = false, more = false;
  LifeSign sign;  // of the holder
};

struct HelloReply {
  bool accepted = false;
  Incarnation incarnation = 0;  // if accepted
  uint16_t reason = 0;          // if not
  std::string text;
};

// --- writing: complete frames, appended to `out`
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
void append_publish(std::vector<std::byte>& out, uint64_t request, uint64_t fence,
                    std::span<const RecordRow> rows);
void append_published(std::vector<std::byte>& out, uint64_t request, bool taken);
void append_follow(std::vector<std::byte>& out, uint64_t request, uint64_t position,
                   uint32_t wait_ms, const LifeSign& sign);
void append_followed(std::vector<std::byte>& out, uint64_t request, const Followed& part);

// --- reading: each returns nullptr, or what is wrong with the frame
// A header of one of `kinds`, with a body of at most `body_bytes_max`.
const char* parse_header(std::span<const std::byte> bytes, std::initializer_list<FrameKind> kinds,
                         size_t body_bytes_max, FrameHeader& header);
const char* parse_challenge(std::span<const std::byte> body, Challenge& challenge);
const char* parse_hello(std::span<const std::byte> body, Hello& hello);
const char* parse_hello_reply(FrameKind kind, std::span<const std::byte> body, HelloReply& reply);
const char* parse_read(std::span<const std::byte> body, uint64_t& request,
                       std::vector<PageWanted>& pages);
// The whole preamble (header, PagesHead, statuses) of the answer to `request`; as many statuses
// as pages were asked for. Whether following_bytes fits them is for the caller to compare.
const char* parse_pages(std::span<const std::byte> preamble, uint64_t request,
                        std::span<PageStatus> statuses, uint64_t& following_bytes);

const char* parse_hold(std::span<const std::byte> body, uint64_t& request, uint32_t& hold_ms,
                       std::vector<Digest>& digests);
// The answer to `request`; as many flags as digests were sent.
const char* parse_held(std::span<const std::byte> body, uint64_t request, std::span<uint8_t> held);
const char* parse_lookup(std::span<const std::byte> body, uint64_t& request, uint64_t& view_number,
                         std::vector<Digest>& digests);
// The answer to `request`: appended, so that the holders of several answers are one table, and
// final if all are.
const char* parse_located(std::span<const std::byte> body, uint64_t request, Located& located);
// Of pages that came into the holder's pool: what takes a record back never travels like this.
const char* parse_publish(std::span<const std::byte> body, uint64_t& request, uint64_t& fence,
                          std::vector<RecordRow>& rows);
const char* parse_published(std::span<const std::byte> body, uint64_t request, bool& taken);
const char* parse_follow(std::span<const std::byte> body, uint64_t& request, uint64_t& position,
                         uint32_t& wait_ms, LifeSign& sign);
// `part.rows` are those in `rows`.
const char* parse_followed(std::span<const std::byte> body, uint64_t request, Followed& part,
                           std::vector<RecordRow>& rows);

// What is wrong with a request for these pages, or nullptr. Asked on both sides.
const char* check_wanted(std::span<const PageWanted> pages);

}  // namespace peercached::tcp
