// One record on its way from the disk to memory: which ranges to read, and what they were worth.
//
//   RecordRead read(entry, salt, dest);
//   while (!read.complete()) { r = read.next(); bounce <- r; if (!read.take(bounce)) -> damaged }
//
// Ranges are whole blocks of the file, at most kReadBytesMax, because direct I/O needs aligned
// memory and slots are not: the payload is copied from the bounce buffer and summed on the way. No
// I/O and no threads in here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/copy.h"
#include "disk/format.h"
#include "disk/index.h"

namespace peercached::disk {

// A page of 1 MiB in one read: its record begins anywhere in a block, with a header.
inline constexpr uint64_t kReadBytesMax = (1 << 20) + (64 << 10);

// Bytes of a segment's file.
struct FileRange {
  uint64_t offset = 0;
  size_t bytes = 0;

  uint64_t end() const { return offset + bytes; }
};
// The whole blocks that a record lies in.
FileRange blocks_of(const IndexEntry& entry);

class RecordRead {
 public:
  // `dest` has room for entry.length bytes.
  RecordRead(const IndexEntry& entry, uint64_t salt, std::byte* dest)
      : entry_(entry), salt_(salt), dest_(dest), running_(nullptr, dest) {}

  FileRange next() const;
  // `bounce` holds what next() asked for. False: this is not the record; `dest` holds anything.
  bool take(const std::byte* bounce);
  bool complete() const { return complete_; }
  const RecordHeader& header() const { return header_; }  // after the first take()

 private:
  uint64_t record_begin() const { return uint64_t{entry_.unit} * kUnitBytes; }
  uint64_t payload_begin() const { return record_begin() + sizeof(RecordHeader); }
  bool take_header(const std::byte* at);

  IndexEntry entry_;
  uint64_t salt_;
  std::byte* dest_;
  RecordHeader header_;
  RunningCopy running_;       // sums what is in dest, for records of several ranges
  uint64_t taken_bytes_ = 0;  // of the payload
  bool complete_ = false;
};

}  // namespace peercached::disk
