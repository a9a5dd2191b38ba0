#include "disk/record_read.h"

#include <algorithm>
#include <cstring>

namespace peercached::disk {

FileRange blocks_of(const IndexEntry& entry) {
  const uint64_t begin = uint64_t{entry.unit} * kUnitBytes;
  const uint64_t end = block_ceil(begin + sizeof(RecordHeader) + entry.length);
  return {block_floor(begin), static_cast<size_t>(end - block_floor(begin))};
}

FileRange RecordRead::next() const {
  const FileRange all = blocks_of(entry_);
  const uint64_t from =
      taken_bytes_ == 0 ? all.offset : block_floor(payload_begin() + taken_bytes_);
  return {from, static_cast<size_t>(std::min(all.end() - from, kReadBytesMax))};
}

bool RecordRead::take(const std::byte* bounce) {
  const FileRange range = next();
  if (taken_bytes_ == 0 && !take_header(bounce + (record_begin() - range.offset))) return false;
  const uint64_t from = payload_begin() + taken_bytes_;
  const uint64_t bytes =
      std::min(range.offset + range.bytes - from, uint64_t{entry_.length} - taken_bytes_);
  const std::byte* source = bounce + (from - range.offset);
  complete_ = taken_bytes_ + bytes == entry_.length;
  if (complete_ && taken_bytes_ == 0)
    return copy_and_checksum(dest_, source, bytes) == entry_.checksum;
  std::memcpy(dest_ + taken_bytes_, source, bytes);
  taken_bytes_ += bytes;
  if (complete_) return running_.finish(entry_.length) == entry_.checksum;
  running_.advance(taken_bytes_);
  return true;
}

bool RecordRead::take_header(const std::byte* at) {
  std::memcpy(&header_, at, sizeof header_);
  return sealed(header_, salt_) && header_.kind == RecordKind::page &&
         header_.digest == entry_.digest && header_.sequence == entry_.sequence &&
         header_.length == entry_.length && header_.checksum == entry_.checksum;
}

}  // namespace peercached::disk
