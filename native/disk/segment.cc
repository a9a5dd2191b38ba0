#include "disk/segment.h"

#include <fcntl.h>
#include <sys/random.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "disk/aligned_buffer.h"

namespace peercached::disk {
namespace {

constexpr std::string_view kPrefix = "segment-", kSuffix = ".log";

uint64_t random_salt() {
  uint64_t salt = 0;
  while (::getrandom(&salt, sizeof salt, 0) != sizeof salt) {
  }
  return salt;
}

}  // namespace

std::string segment_path(const std::string& folder, uint32_t number) {
  char digits[16];
  std::snprintf(digits, sizeof digits, "%010u", number);
  return folder + "/" + std::string(kPrefix) + digits + std::string(kSuffix);
}

uint32_t segment_number(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return 0;
  const char* begin = name.data() + kPrefix.size();
  const char* end = name.data() + name.size() - kSuffix.size();
  uint32_t number = 0;
  const auto [stop, error] = std::from_chars(begin, end, number);
  return error == std::errc() && stop == end && end - begin == 10 ? number : 0;
}

int open_direct(Io& io, const std::string& path, int flags, bool& direct) {
  direct = true;
  const int fd = io.open(path, flags | O_DIRECT, 0600);
  if (fd != -EINVAL) return fd;
  direct = false;
  // The refused attempt may have created the file, so drop O_EXCL.
  return io.open(path, flags & ~O_EXCL, 0600);
}

int create_segment(Io& io, const std::string& folder, uint32_t number, uint64_t bytes,
                   const Identity& identity, bool sync, std::shared_ptr<Segment>& made) {
  auto segment = std::make_shared<Segment>();
  segment->number = number;
  segment->salt = random_salt();
  segment->file_bytes = bytes;
  const std::string path = segment_path(folder, number);
  const int fd = open_direct(io, path, O_RDWR | O_CREAT | O_EXCL, segment->direct);
  if (fd < 0) return fd;
  segment->file = File(io, fd);

  SegmentHeader header;
  header.number = number;
  header.salt = segment->salt;
  header.identity = identity;
  seal(header);
  AlignedBuffer block(kBlockBytes);
  std::memset(block.data(), 0, kBlockBytes);
  std::memcpy(block.data(), &header, sizeof header);
  int error = io.allocate(fd, bytes);
  if (error == 0) error = write_all(io, fd, block.data(), kBlockBytes, 0);
  if (error == 0 && sync) error = io.fdatasync(fd);
  if (error == 0 && sync) error = io.sync_directory(folder);
  if (error != 0) {
    io.unlink(path);
    return error;
  }
  made = std::move(segment);
  return 0;
}

int write_footer(Io& io, Segment& segment, std::span<const FooterEntry> entries,
                 uint64_t records_end, bool sync, uint64_t& file_bytes) {
  const uint64_t bytes = footer_bytes(entries.size());
  AlignedBuffer footer(bytes);
  std::memset(footer.data(), 0, bytes);
  if (!entries.empty()) std::memcpy(footer.data(), entries.data(), entries.size_bytes());
  FooterTrailer trailer;
  trailer.number = segment.number;
  trailer.entries = entries.size();
  trailer.entries_offset = records_end;
  trailer.entries_check = entries_check(entries, segment.salt);
  seal(trailer, segment.salt);
  std::memcpy(footer.data() + bytes - kBlockBytes, &trailer, sizeof trailer);

  const int fd = segment.file.fd();
  int error = sync ? io.fdatasync(fd) : 0;
  if (error == 0) error = write_all(io, fd, footer.data(), bytes, records_end);
  if (error == 0) error = io.truncate(fd, records_end + bytes);
  if (error == 0 && sync) error = io.fdatasync(fd);
  if (error == 0) file_bytes = records_end + bytes;
  return error;
}

void SegmentSet::add(std::shared_ptr<Segment> segment) {
  MutexLock lock(mutex_);
  bytes_ += segment->file_bytes;
  segments_[segment->number] = std::move(segment);
}

std::shared_ptr<Segment> SegmentSet::get(uint32_t number) const {
  MutexLock lock(mutex_);
  const auto found = segments_.find(number);
  return found == segments_.end() ? nullptr : found->second;
}

std::shared_ptr<Segment> SegmentSet::oldest() const {
  MutexLock lock(mutex_);
  return segments_.empty() ? nullptr : segments_.begin()->second;
}

std::vector<std::shared_ptr<Segment>> SegmentSet::all() const {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<Segment>> all;
  all.reserve(segments_.size());
  for (const auto& [number, segment] : segments_) all.push_back(segment);
  return all;
}

void SegmentSet::resize(uint32_t number, uint64_t file_bytes) {
  MutexLock lock(mutex_);
  const auto found = segments_.find(number);
  if (found == segments_.end()) return;
  bytes_ += file_bytes - found->second->file_bytes;
  found->second->file_bytes = file_bytes;
}

void SegmentSet::remove(uint32_t number) {
  MutexLock lock(mutex_);
  const auto found = segments_.find(number);
  if (found == segments_.end()) return;
  bytes_ -= found->second->file_bytes;
  segments_.erase(found);
}

uint64_t SegmentSet::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

size_t SegmentSet::count() const {
  MutexLock lock(mutex_);
  return segments_.size();
}

}  // namespace peercached::disk
