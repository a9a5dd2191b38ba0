#include "disk/record_read.h"

#include <algorithm>
#include <cstring>

namespace peercached::disk {

FileRange blocks_of(const IndexEntry& entry) {
  const uint64_t begin = uint64_t{entry.unit} * kUnitBytes;
  const uint64_t end = block_ceil(begin + entry.length);
  return {block_floor(begin), static_cast<size_t>(end - block_floor(begin))};
}

FileRange RecordRead::next() const {
  const FileRange all = blocks_of(entry_);
  const uint64_t from = block_floor(begin() + taken_bytes_);
  return {from, static_cast<size_t>(std::min(all.end() - from, kReadBytesMax))};
}

bool RecordRead::take(const std::byte* bounce) {
  const FileRange range = next();
  const uint64_t from = begin() + taken_bytes_;
  const uint64_t bytes =
      std::min(range.offset + range.bytes - from, uint64_t{entry_.length} - taken_bytes_);
  const std::byte* source = bounce + (from - range.offset);
  complete_ = taken_bytes_ + bytes == entry_.length;
  copied_bytes_ += bytes;
  if (complete_ && taken_bytes_ == 0)
    return copy_and_checksum(dest_, source, bytes) == entry_.checksum;
  std::memcpy(dest_ + taken_bytes_, source, bytes);
  taken_bytes_ += bytes;
  if (complete_) return running_.finish(entry_.length) == entry_.checksum;
  running_.advance(taken_bytes_);
  return true;
}

}  // namespace peercached::disk
