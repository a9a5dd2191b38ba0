// The basic types of the data plane: digests, records, page statuses.
//
// All are plain data with a fixed little-endian layout, because the same bytes travel between
// threads, over gRPC and through one-sided READs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <span>

namespace peercached {

// A 16-byte keyed hash of (namespace, key): see common/identity.h.
struct Digest {
  uint64_t hi = 0;
  uint64_t lo = 0;
  friend bool operator==(const Digest&, const Digest&) = default;
  friend auto operator<=>(const Digest&, const Digest&) = default;
};
static_assert(sizeof(Digest) == 16);

// Random in each process. Two rounds, each with a mask and an odd factor.
struct TableSecret {
  uint64_t mask[2] = {};
  uint64_t factor[2] = {};
};
extern const TableSecret kTableSecret;

// Places a digest in a table of this process. Digests are uniform, but without a cluster secret
// anybody can compute them. An attacker could choose keys that a public hash puts into one chain.
inline uint64_t table_hash(const Digest& d) noexcept {
  __extension__ using Wide = unsigned __int128;
  uint64_t hash = d.lo;
  // Folds the halves of the whole product, as in wyhash. After one round a series of digests would
  // still be nearly a series, which spreads badly for some factors.
  for (int round = 0; round < 2; ++round) {
    const Wide product = Wide{hash ^ kTableSecret.mask[round]} * kTableSecret.factor[round];
    hash = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  return hash;
}

struct DigestHash {
  size_t operator()(const Digest& d) const noexcept { return table_hash(d); }
};

// One daemon start. 0 is never used.
using Incarnation = uint64_t;

// One use of a slot, or one change of a record. The holder draws it from a counter that only grows
// within an incarnation, so it also orders that holder's record updates. The directory keeps 48
// bits of it.
using Generation = uint64_t;

// The place of a removal in the order of all removals on one node, over its lifetime. 0 is before
// the first. A page carries the position of the newest removal when it was set
// (removals/journal.h).
using Position = uint64_t;

// A page, and the removal that removed it: a number that is the same at all nodes. 0: replaced
// here, which concerns nobody else.
struct Removed {
  Digest digest;
  uint64_t removal = 0;
  friend bool operator==(const Removed&, const Removed&) = default;
};
static_assert(sizeof(Removed) == 24);

// The journal that a file or folder of pages was last used with: its id and last position. Zero:
// none.
struct TierNote {
  uint64_t journal = 0;
  Position position = 0;
};

// A node incarnation as numbered by the local control plane; local meaning only.
using HolderIndex = uint16_t;
inline constexpr HolderIndex kSelfHolder = 0;
inline constexpr HolderIndex kNoHolder = 0xffff;
inline constexpr size_t kNodesMax = 8192;

// The outcome of one page. The wire form in IPC replies; docs/protocol.md lists them.
enum class PageStatus : uint8_t {
  ok = 0,
  absent = 1,            // no live record, here or at an owner
  stale = 2,             // the slot was reused between lookup and read, twice
  deadline = 3,          // the deadline passed
  suspect = 4,           // all its holders are suspected of being dead or hung
  error = 5,             // the transfer failed, or the disk with the page
  no_space = 6,          // set: everything evictable is pinned or reserved
  too_large = 7,         // set: larger than the pool can ever hold
  bad_key = 8,           // empty, or longer than kKeyBytesMax
  bad_region = 9,        // no such region in this attachment
  bad_range = 10,        // outside the region, of length zero, or (get) overlaps another page
  duplicate_key = 11,    // set: the same key earlier in the same batch
  length_mismatch = 12,  // get: the stored page has another length
  region_lost = 13,      // the worker's memory faulted (truncated memfd)
  draining = 14,         // set: this daemon is about to leave; remove: it has left
  removing = 15,         // a removal of this key goes on in the background
  pending = 255,         // internal: not decided yet
};
// For counting by status, and in the status document; the last place is for `pending`.
inline constexpr const char* kStatusNames[] = {
    "ok",        "absent",        "stale",           "deadline",    "suspect",
    "error",     "no_space",      "too_large",       "bad_key",     "bad_region",
    "bad_range", "duplicate_key", "length_mismatch", "region_lost", "draining",
    "removing",  "undecided"};
constexpr size_t kStatusCount = std::size(kStatusNames);
static_assert(kStatusCount == static_cast<size_t>(PageStatus::removing) + 2);
constexpr size_t status_index(PageStatus status) {
  return std::min<size_t>(static_cast<size_t>(status), kStatusCount - 1);
}

// A record as it travels between shard, engine and control plane, and on the wire of
// the directory RPCs (RecordRow, docs/protocol.md): 48 bytes, little-endian.
struct RecordRow {
  Digest digest;
  uint64_t offset = 0;             // of the slot header, bytes from the pool's start
  Generation generation = 0;       // of the slot's use; of the change, when withdrawing
  uint32_t check = 0;              // low 32 bits of the payload checksum
  uint32_t length = 0;             // payload bytes
  HolderIndex holder = kNoHolder;  // local numbering, or index in the message's table
  uint8_t flags = 0;               // RecordFlags
  uint8_t uses = 0;                // reads of a page that leaves its pool; else 0
  uint8_t reserved[4] = {};
};
static_assert(sizeof(RecordRow) == 48);

// A page that a peer wants to read, as its record names it. Sent as it is.
struct PageWanted {
  uint64_t offset = 0;
  Digest digest;
  Generation generation = 0;
  uint32_t length = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(PageWanted) == 40);

enum RecordFlags : uint8_t {
  kRecordResident = 1,  // in the holder's pool; else on its disk only
  kRecordWithdraw = 2,  // in updates only: the holder has lost the page
};

// The generation of the object store that the node knew when the page was set (docs/cold-tier.md).
// It goes with the page to other pools, to disks and to the store. A lower one is always safe, 0
// too.
using Born = uint32_t;
inline constexpr Born kBornMax = (1 << 24) - 1;

// The header in front of every page, in the pool and on the wire. Unless its state is
// kSlotCommitted, the slot has no content.
struct SlotHeader {
  Digest digest;
  Incarnation incarnation = 0;
  Generation generation = 0;
  uint64_t length = 0;       // payload bytes
  uint64_t checksum = 0;     // XXH3-64 of the payload
  uint32_t state = 0;        // kSlotInvalid or kSlotCommitted
  uint32_t version : 8 = 0;  // kSlotVersion
  uint32_t born : 24 = 0;    // see Born
  uint64_t check = 0;        // XXH3-64 of the 56 bytes before
};
static_assert(sizeof(SlotHeader) == 64);
inline constexpr uint32_t kSlotInvalid = 0;
inline constexpr uint32_t kSlotCommitted = 0x434f4d4d;
inline constexpr uint32_t kSlotVersion = 1;

// seal() fills `check`. sealed(): `check` is right, and the state is committed.
void seal(SlotHeader& header);
bool sealed(const SlotHeader& header);

inline constexpr uint32_t kKeyBytesMax = 4096;
inline constexpr uint32_t kPageBytesMax = 1u << 30;
inline constexpr uint32_t kHoldMsMax = 30'000;    // longer holds are cut
inline constexpr uint32_t kWaitMsMax = 30'000;    // longer waits are cut
inline constexpr uint32_t kPinMsMax = 3'600'000;  // longer pins are cut

}  // namespace peercached
