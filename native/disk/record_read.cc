#include "disk/record_read.h"

#include <algorithm>
#include <cstring>

namespace peercached::disk {

RecordRead::Range RecordRead::next() const {
  const uint64_t from =
      block_floor(taken_bytes_ == 0 ? record_begin() : payload_begin() + taken_bytes_);
  const uint64_t end = block_ceil(payload_begin() + entry_.length);
  return {from, static_cast<size_t>(std::min(end - from, kReadBytesMax))};
}

bool RecordRead::take(const std::byte* bounce) {
  const Range range = next();
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
