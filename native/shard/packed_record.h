// A record as the shard stores it: 36 bytes, nine words of 32 bits. Each line names the fields of
// a word, lowest bits first. The low byte of digest.hi is not stored: the piece implies it.
//
//   word 0  digest.lo bits 0..31
//   word 1  digest.lo bits 32..63
//   word 2  digest.hi bits 8..39
//   word 3  digest.hi bits 40..63        | generation bits 0..7
//   word 4  generation bits 8..39
//   word 5  generation bits 40..47       | offset bits 0..23 (unit: 64 bytes)
//   word 6  offset bits 24..37           | 2 unused bits, 0  | holder (16 bits)
//   word 7  length (31 bits, never 0)    | resident (1 bit)
//   word 8  check
#pragma once

#include <array>
#include <cstdint>

#include "common/types.h"

namespace peercached {

struct PackedRecord {
  static constexpr unsigned kWords = 9;
  static constexpr unsigned kLoWord = 0;  // and the next word; likewise kHiWord
  static constexpr unsigned kHiWord = 2;
  static constexpr unsigned kHolderWord = 6;
  static constexpr unsigned kLengthWord = 7;
  static constexpr unsigned kOffsetUnitBytes = 64;
  static constexpr uint64_t kOffsetBytesMax = ((uint64_t{1} << 38) - 1) * kOffsetUnitBytes;
  static constexpr uint64_t kGenerationMax = (uint64_t{1} << 48) - 1;

  std::array<uint32_t, kWords> words;

  // Whether the row fits this format. A withdrawal uses only digest and generation.
  static bool representable(const RecordRow& row) {
    if (row.generation > kGenerationMax) return false;
    if (row.flags & ~(kRecordResident | kRecordWithdraw)) return false;
    if (row.flags & kRecordWithdraw) return true;
    return row.offset % kOffsetUnitBytes == 0 && row.offset <= kOffsetBytesMax && row.length > 0 &&
           row.length <= kPageBytesMax;
  }

  static PackedRecord of(const RecordRow& row, HolderIndex holder) {
    const uint64_t offset = row.offset / kOffsetUnitBytes;
    const uint64_t generation = row.generation;
    PackedRecord r;
    r.words[0] = static_cast<uint32_t>(row.digest.lo);
    r.words[1] = static_cast<uint32_t>(row.digest.lo >> 32);
    r.words[2] = static_cast<uint32_t>(row.digest.hi >> 8);
    r.words[3] = static_cast<uint32_t>(row.digest.hi >> 40 | (generation & 0xff) << 24);
    r.words[4] = static_cast<uint32_t>(generation >> 8);
    r.words[5] = static_cast<uint32_t>(generation >> 40 | (offset & 0xffffff) << 8);
    r.words[6] = static_cast<uint32_t>(offset >> 24 | uint32_t{holder} << 16);
    r.words[7] = row.length | (row.flags & kRecordResident ? 1u << 31 : 0);
    r.words[8] = row.check;
    return r;
  }

  // All fields except the digest.
  RecordRow row() const {
    RecordRow row;
    row.offset = (words[5] >> 8 | uint64_t{words[6] & 0x3fff} << 24) * kOffsetUnitBytes;
    row.generation = generation();
    row.check = words[8];
    row.length = words[7] & 0x7fffffff;
    row.holder = holder();
    row.flags = words[7] >> 31 ? kRecordResident : 0;
    return row;
  }

  uint64_t lo() const { return words[0] | uint64_t{words[1]} << 32; }
  uint64_t hi_above_low_byte() const { return hi_in(words[2], words[3]); }
  static uint64_t hi_in(uint32_t word2, uint32_t word3) {
    return word2 | uint64_t{word3 & 0xffffff} << 32;
  }
  // `digest` must belong to the same piece.
  bool is_of(const Digest& digest) const {
    return lo() == digest.lo && hi_above_low_byte() == digest.hi >> 8;
  }
  Generation generation() const {
    return words[3] >> 24 | uint64_t{words[4]} << 8 | uint64_t{words[5] & 0xff} << 40;
  }
  HolderIndex holder() const { return holder_in(words[6]); }
  static HolderIndex holder_in(uint32_t word) { return static_cast<HolderIndex>(word >> 16); }

  friend bool operator==(const PackedRecord&, const PackedRecord&) = default;
};
static_assert(sizeof(PackedRecord) == 36);

}  // namespace peercached
