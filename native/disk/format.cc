#include "disk/format.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace peercached::disk {
namespace {

template <typename Block>
uint64_t check_of(const Block& block, uint64_t seed) {
  static_assert(offsetof(Block, check) + sizeof block.check == sizeof block);
  return XXH3_64bits_withSeed(&block, offsetof(Block, check), seed);
}

}  // namespace

void seal(Superblock& block) { block.check = check_of(block, 0); }
void seal(RemovalsNote& note) { note.check = check_of(note, 0); }
void seal(SegmentHeader& header) { header.check = check_of(header, 0); }
void seal(RecordHeader& header, uint64_t salt) { header.check = check_of(header, salt); }
void seal(FooterTrailer& trailer, uint64_t salt) { trailer.check = check_of(trailer, salt); }

bool sealed(const Superblock& block) {
  return block.magic == Superblock::kMagic && block.check == check_of(block, 0);
}
bool sealed(const RemovalsNote& note) { return note.check == check_of(note, 0); }
bool sealed(const SegmentHeader& header) {
  return header.magic == SegmentHeader::kMagic && header.version == kFormatVersion &&
         header.check == check_of(header, 0);
}
bool sealed(const RecordHeader& header, uint64_t salt) {
  return header.magic == RecordHeader::kMagic && header.check == check_of(header, salt);
}
bool sealed(const FooterTrailer& trailer, uint64_t salt) {
  return trailer.magic == FooterTrailer::kMagic && trailer.check == check_of(trailer, salt);
}

uint64_t entries_check(std::span<const FooterEntry> entries, uint64_t salt) {
  return XXH3_64bits_withSeed(entries.data(), entries.size_bytes(), salt);
}

RecordHeader header_of(const FooterEntry& entry) {
  RecordHeader header;
  header.kind = entry.kind;
  header.sequence = entry.sequence;
  header.digest = entry.digest;
  header.namespace_id = entry.namespace_id;
  header.epoch = entry.epoch;
  header.checksum = entry.checksum;
  header.length = entry.length;
  header.unit = entry.unit;
  header.set_at = entry.set_at;
  header.born = entry.born;
  return header;
}

FooterEntry entry_of(const RecordHeader& header) {
  FooterEntry entry;
  entry.digest = header.digest;
  entry.namespace_id = header.namespace_id;
  entry.epoch = header.epoch;
  entry.checksum = header.checksum;
  entry.sequence = header.sequence;
  entry.unit = header.unit;
  entry.set_at = header.set_at;
  entry.born = header.born;
  entry.length = header.length;
  entry.kind = header.kind;
  return entry;
}

}  // namespace peercached::disk
