// The on-disk format, byte for byte; docs/storage.md gives the reasons.
//
//   DIR/lock                  held with flock by the daemon that uses the directory
//   DIR/removals              RemovalsNote: which removals it has seen
//   DIR/format                Superblock: owner and version of the directory
//   DIR/segment-NUMBER.log    SegmentHeader | records ... | footer entries | FooterTrailer
//
// A segment is written in batches that begin at multiples of 4 KiB. A batch has its record headers,
// 128 bytes each, then the payloads from a multiple of 4 KiB on. A payload that fills its blocks
// begins at a block boundary, so that reading it does not read its neighbours. (Otherwise 16 KiB
// would cost 20.) Sealing a segment writes the footer behind the records and ends the file there.
// All numbers are little-endian.
//
// All checksums except the superblock's and the segment header's are seeded with the segment's
// salt, 64 random bits. So neither old file content nor a page that looks like a record is ever
// taken for a record.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/types.h"

namespace peercached::disk {

static_assert(std::endian::native == std::endian::little);

inline constexpr uint32_t kFormatVersion = 3;
inline constexpr uint64_t kBlockBytes = 4096;  // unit of direct I/O
inline constexpr uint64_t kUnitBytes = 64;     // headers and payloads begin at multiples of it

constexpr uint64_t block_floor(uint64_t bytes) { return bytes / kBlockBytes * kBlockBytes; }
constexpr uint64_t block_ceil(uint64_t bytes) { return block_floor(bytes + kBlockBytes - 1); }
constexpr uint64_t unit_ceil(uint64_t bytes) {
  return (bytes + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
}

using Identity = std::array<std::byte, 16>;

struct Superblock {
  uint64_t magic = kMagic;
  uint32_t version = kFormatVersion;
  uint32_t reserved = 0;
  Identity identity = {};
  uint64_t check = 0;                                     // of the 32 bytes before
  static constexpr uint64_t kMagic = 0x4b53494452454550;  // "PEERDISK"
};
static_assert(sizeof(Superblock) == 40);

// DIR/removals: which removals the directory has seen. Rewritten in place from time to time.
struct RemovalsNote {
  TierNote note;
  uint64_t check = 0;  // of the 16 bytes before
};
static_assert(sizeof(RemovalsNote) == 24);

struct SegmentHeader {
  uint64_t magic = kMagic;
  uint32_t version = kFormatVersion;
  uint32_t reserved = 0;
  uint64_t number = 0;
  uint64_t salt = 0;
  Identity identity = {};
  uint64_t check = 0;  // of the 48 bytes before
  static constexpr uint64_t kMagic = 0x474553524545500a;
};
static_assert(sizeof(SegmentHeader) == 56);
inline constexpr uint64_t kRecordsBegin = kBlockBytes;  // the header has a block of its own

enum class RecordKind : uint32_t {
  page = 1,
  removal = 2,  // voids records of this digest with a lower sequence
  clear = 3,    // voids records of this namespace with a lower epoch
};

struct RecordHeader {
  uint32_t magic = kMagic;
  RecordKind kind = RecordKind::page;
  uint64_t sequence = 0;  // the highest one of a digest is valid; never 0
  Digest digest;
  Digest namespace_id;
  uint64_t epoch = 0;
  uint64_t checksum = 0;  // XXH3-64 of the payload
  uint32_t length = 0;    // of the payload, bytes
  uint32_t unit = 0;      // the payload begins at unit * kUnitBytes of the segment
  Position set_at = 0;    // the newest removal (removals/journal.h) when it was put
  Born born = 0;
  uint32_t reserved[9] = {};
  uint64_t check = 0;                             // of the 120 bytes before, seeded with the salt
  static constexpr uint32_t kMagic = 0x44524350;  // "PCRD"
};
static_assert(sizeof(RecordHeader) == 2 * kUnitBytes);

// Bytes of a record in a batch, without padding to blocks.
constexpr uint64_t record_bytes(uint32_t length) {
  return sizeof(RecordHeader) + unit_ceil(length);
}
// Bytes of a batch's headers, and of a batch of one record.
constexpr uint64_t headers_bytes(uint64_t records) {
  return block_ceil(records * sizeof(RecordHeader));
}
constexpr uint64_t lone_record_bytes(uint32_t length) {
  return headers_bytes(1) + block_ceil(length);
}
// First place for a payload at or after `from`, both relative to a block boundary. Aligns to a
// block if whole blocks waste at most a sixteenth of its length.
constexpr uint64_t payload_begin(uint64_t from, uint32_t length) {
  return block_ceil(length) - length <= length / 16 ? block_ceil(from) : unit_ceil(from);
}

struct FooterEntry {
  Digest digest;
  Digest namespace_id;
  uint64_t epoch = 0;
  uint64_t checksum = 0;
  uint64_t sequence = 0;
  Position set_at = 0;
  uint32_t unit = 0;  // the payload begins at unit * kUnitBytes
  uint32_t length = 0;
  RecordKind kind = RecordKind::page;
  Born born = 0;
};
static_assert(sizeof(FooterEntry) == 80);

// Most bytes that a page takes on disk, as if it came alone; quotas count this.
constexpr uint64_t page_room(uint32_t length) {
  return lone_record_bytes(length) + sizeof(FooterEntry);
}

// The last block of a sealed segment; the entries are in the blocks before.
struct FooterTrailer {
  uint64_t magic = kMagic;
  uint64_t number = 0;
  uint64_t entries = 0;
  uint64_t entries_offset = 0;
  uint64_t entries_check = 0;  // of all entries, seeded with the salt
  uint64_t check = 0;          // of the 40 bytes before, seeded with the salt
  static constexpr uint64_t kMagic = 0x5245544f4f464350;  // "PCFOOTER"
};
static_assert(sizeof(FooterTrailer) == 48);

constexpr uint64_t footer_bytes(uint64_t entries) {
  return block_ceil(entries * sizeof(FooterEntry)) + kBlockBytes;
}

// seal() fills `check`; sealed() verifies magic, version and `check`.
void seal(Superblock& block);
void seal(RemovalsNote& note);
void seal(SegmentHeader& header);
void seal(RecordHeader& header, uint64_t salt);
void seal(FooterTrailer& trailer, uint64_t salt);
bool sealed(const Superblock& block);  // accepts any version
bool sealed(const RemovalsNote& note);
bool sealed(const SegmentHeader& header);
bool sealed(const RecordHeader& header, uint64_t salt);
bool sealed(const FooterTrailer& trailer, uint64_t salt);
uint64_t entries_check(std::span<const FooterEntry> entries, uint64_t salt);

// Converts between a record's header and its footer entry.
RecordHeader header_of(const FooterEntry& entry);
FooterEntry entry_of(const RecordHeader& header);

}  // namespace peercached::disk
