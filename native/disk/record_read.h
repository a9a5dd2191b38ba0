// One record on its way from disk to memory: the ranges to read, and their verification.
//
//   RecordRead read(entry, dest);
//   while (!read.complete()) { r = read.next(); bounce <- r; if (!read.take(bounce)) -> damaged }
//
// Ranges are whole blocks of the file, at most kReadBytesMax. Direct I/O needs aligned memory and
// slots are not aligned, so the payload is copied from a bounce buffer and checksummed on the way.
// The header is not read: only recovery needs it, and the index has the checksum. No I/O and no
// threads in here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/copy.h"
#include "disk/format.h"
#include "disk/index.h"
#include "disk/segment.h"

namespace peercached::disk {

// Fits a page of 1 MiB in one read, wherever in a block it begins.
inline constexpr uint64_t kReadBytesMax = (1 << 20) + kBlockBytes;

// The whole blocks that contain a record's payload.
FileRange blocks_of(const IndexEntry& entry);

class RecordRead {
 public:
  // `dest` has room for entry.length bytes.
  RecordRead(const IndexEntry& entry, std::byte* dest)
      : entry_(entry), dest_(dest), running_(nullptr, dest) {}

  FileRange next() const;
  // `bounce` holds the range of next(). False: wrong content; `dest` is then undefined.
  bool take(const std::byte* bounce);
  bool complete() const { return complete_; }
  uint64_t copied_bytes() const { return copied_bytes_; }

 private:
  uint64_t begin() const { return uint64_t{entry_.unit} * kUnitBytes; }

  IndexEntry entry_;
  std::byte* dest_;
  RunningCopy running_;       // checksums `dest`, for records of several ranges
  uint64_t taken_bytes_ = 0;  // of the payload
  uint64_t copied_bytes_ = 0;
  bool complete_ = false;
};

}  // namespace peercached::disk
