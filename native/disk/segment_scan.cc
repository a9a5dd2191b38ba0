#include "disk/segment_scan.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>

#include "common/copy.h"
#include "disk/aligned_buffer.h"

namespace peercached::disk {
namespace {

constexpr int kReadErrorsMax = 16;  // then the rest of the segment is given up

// A window of some megabytes over the file. After a read error it loads only the needed blocks, so
// that a bad block costs only its own records.
class Window {
 public:
  Window(Io& io, int fd, uint64_t file_bytes) : io_(io), fd_(fd), file_bytes_(file_bytes) {}

  // [at, at + bytes) of the file, which must lie within it; nullptr if the disk fails.
  const std::byte* view(uint64_t at, uint64_t bytes) {
    if (at < begin_ || at + bytes > end_) {
      if (!load(at, bytes)) return nullptr;
    }
    return buffer_.data() + (at - begin_);
  }
  int errors() const { return errors_; }

 private:
  static constexpr uint64_t kWindowBytes = 4 << 20;

  bool load(uint64_t at, uint64_t bytes) {
    const uint64_t begin = block_floor(at), end = block_ceil(at + bytes);
    const uint64_t far_end = std::min(begin + kWindowBytes, block_floor(file_bytes_));
    if (begin >= careful_until_ && far_end > end) {
      if (read(begin, far_end)) return true;
      careful_until_ = far_end;
    }
    if (read(begin, end)) return true;
    ++errors_;
    return false;
  }

  bool read(uint64_t begin, uint64_t end) {
    begin_ = end_ = 0;
    buffer_.reserve(end - begin);
    if (read_all(io_, fd_, buffer_.data(), end - begin, begin) != 0) return false;
    begin_ = begin;
    end_ = end;
    return true;
  }

  Io& io_;
  const int fd_;
  const uint64_t file_bytes_;
  AlignedBuffer buffer_;
  uint64_t begin_ = 0, end_ = 0;
  uint64_t careful_until_ = 0;
  int errors_ = 0;
};

bool not_the_disks_fault(int error) {
  return error == -EMFILE || error == -ENFILE || error == -ENOMEM || error == -EACCES ||
         error == -EPERM;
}

// by_records if the header is valid.
ScannedSegment::Verdict read_header(Io& io, Segment& segment, const Identity& identity) {
  if (segment.file_bytes < kBlockBytes) return ScannedSegment::Verdict::unfinished;
  AlignedBuffer block(kBlockBytes);
  if (read_all(io, segment.file.fd(), block.data(), kBlockBytes, 0) != 0)
    return ScannedSegment::Verdict::rejected;
  if (std::all_of(block.data(), block.data() + kBlockBytes,
                  [](auto b) { return b == std::byte{}; }))
    return ScannedSegment::Verdict::unfinished;
  SegmentHeader header;
  std::memcpy(&header, block.data(), sizeof header);
  if (!sealed(header) || header.number != segment.number || header.identity != identity)
    return ScannedSegment::Verdict::rejected;
  segment.salt = header.salt;
  return ScannedSegment::Verdict::by_records;
}

bool sane(const FooterEntry& entry, uint64_t records_end) {
  const uint64_t begin = uint64_t{entry.unit} * kUnitBytes;
  return entry.sequence != 0 && begin >= kRecordsBegin && begin + entry.length <= records_end &&
         entry.length <= kPageBytesMax && (entry.kind == RecordKind::page) == (entry.length > 0);
}

bool read_footer(Io& io, const Segment& segment, std::vector<FooterEntry>& entries) {
  const uint64_t file_bytes = segment.file_bytes;
  if (file_bytes % kBlockBytes != 0 || file_bytes < kRecordsBegin + kBlockBytes) return false;
  AlignedBuffer block(kBlockBytes);
  const uint64_t trailer_at = file_bytes - kBlockBytes;
  if (read_all(io, segment.file.fd(), block.data(), kBlockBytes, trailer_at) != 0) return false;
  FooterTrailer trailer;
  std::memcpy(&trailer, block.data(), sizeof trailer);
  if (!sealed(trailer, segment.salt) || trailer.number != segment.number ||
      trailer.entries > file_bytes / sizeof(FooterEntry) ||
      trailer.entries_offset + footer_bytes(trailer.entries) != file_bytes) {
    return false;
  }
  if (trailer.entries == 0) return true;
  const uint64_t bytes = trailer_at - trailer.entries_offset;
  AlignedBuffer buffer(bytes);
  if (read_all(io, segment.file.fd(), buffer.data(), bytes, trailer.entries_offset) != 0)
    return false;
  const std::span<const FooterEntry> found(reinterpret_cast<const FooterEntry*>(buffer.data()),
                                           trailer.entries);
  if (entries_check(found, segment.salt) != trailer.entries_check ||
      !std::ranges::all_of(found, [&](const auto& e) { return sane(e, trailer.entries_offset); })) {
    return false;
  }
  entries.assign(found.begin(), found.end());
  return true;
}

// Tries every place where a header may be, because batches may be missing, torn or damaged. Skips
// payloads that were verified.
void walk(Io& io, ScannedSegment& scanned) {
  const Segment& segment = *scanned.segment;
  const uint64_t file_bytes = block_floor(segment.file_bytes);
  Window window(io, segment.file.fd(), file_bytes);
  std::deque<FileRange> ahead;  // payloads of the batch; its headers are being read
  for (uint64_t at = kRecordsBegin; at + sizeof(RecordHeader) <= file_bytes;) {
    if (!ahead.empty() && ahead.front().offset <= at) {
      at = std::max(at, unit_ceil(ahead.front().end()));
      ahead.pop_front();
      continue;
    }
    const std::byte* here = window.view(at, sizeof(RecordHeader));
    if (here == nullptr) {
      if (window.errors() > kReadErrorsMax) break;
      at = block_floor(at) + kBlockBytes;
      continue;
    }
    RecordHeader header;
    std::memcpy(&header, here, sizeof header);
    const bool good = header.magic == RecordHeader::kMagic && sealed(header, segment.salt);
    const FooterEntry entry = entry_of(header);
    if (!good || !sane(entry, file_bytes)) {
      at += kUnitBytes;
      continue;
    }
    at += sizeof header;
    const FileRange payload{uint64_t{entry.unit} * kUnitBytes, entry.length};
    if (payload.bytes > 0) {
      const std::byte* bytes = window.view(payload.offset, payload.bytes);
      if (bytes == nullptr || checksum(bytes, payload.bytes) != entry.checksum) {
        ++scanned.corrupt;
        continue;
      }
      ahead.push_back(payload);
    }
    scanned.entries.push_back(entry);
    scanned.records_end =
        std::max({scanned.records_end, block_ceil(at), block_ceil(payload.end())});
  }
  scanned.verdict = window.errors() == 0 ? ScannedSegment::Verdict::by_records
                                         : ScannedSegment::Verdict::unreadable;
}

}  // namespace

ScannedSegment scan_segment(Io& io, const std::string& folder, uint32_t number,
                            const Identity& identity) {
  ScannedSegment scanned;
  auto segment = std::make_shared<Segment>();
  segment->number = number;
  const std::string path = segment_path(folder, number);
  int fd = open_direct(io, path, O_RDWR, segment->direct);
  scanned.writable = fd >= 0;
  if (fd < 0) fd = open_direct(io, path, O_RDONLY, segment->direct);
  if (fd < 0) {
    if (not_the_disks_fault(fd)) scanned.verdict = ScannedSegment::Verdict::refused;
    scanned.error = fd;
    return scanned;
  }
  segment->file = File(io, fd);
  const int64_t file_bytes = io.size(fd);
  if (file_bytes < 0) return scanned;
  segment->file_bytes = static_cast<uint64_t>(file_bytes);

  scanned.verdict = read_header(io, *segment, identity);
  if (scanned.verdict == ScannedSegment::Verdict::unfinished ||
      scanned.verdict == ScannedSegment::Verdict::rejected) {
    return scanned;
  }
  scanned.segment = std::move(segment);
  if (read_footer(io, *scanned.segment, scanned.entries)) {
    scanned.verdict = ScannedSegment::Verdict::by_footer;
  } else {
    scanned.entries.clear();
    walk(io, scanned);
  }
  return scanned;
}

}  // namespace peercached::disk
