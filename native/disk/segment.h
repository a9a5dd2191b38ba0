// Segment files, and the set of all segments.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "disk/format.h"
#include "disk/io.h"

namespace peercached::disk {

// An open file. It stays readable for its owners, even after it was unlinked.
struct Segment {
  uint32_t number = 0;
  uint64_t salt = 0;
  File file;
  bool direct = false;              // O_DIRECT
  uint64_t file_bytes = 0;          // guarded by SegmentSet once it is in there
  std::atomic<bool> sealed{false};  // no more writes: it may be evicted
  bool unlinked = false;            // used only by the housekeeping thread
};

// A range of a segment's file.
struct FileRange {
  uint64_t offset = 0;
  size_t bytes = 0;

  uint64_t end() const { return offset + bytes; }
};

std::string segment_path(const std::string& folder, uint32_t number);
// The number in a file's name; 0: not a segment's name.
uint32_t segment_number(const std::string& name);

// Opens with O_DIRECT if the file system supports it, else without, and sets `direct`. A file
// descriptor or -errno.
int open_direct(Io& io, const std::string& path, int flags, bool& direct);

// Makes the file, reserves its blocks and writes the header. Deletes it on failure if the disk
// allows. `sync`: header and name are on the medium when this returns. 0 or -errno.
int create_segment(Io& io, const std::string& folder, uint32_t number, uint64_t bytes,
                   const Identity& identity, bool sync, std::shared_ptr<Segment>& made);

// Writes the footer at `records_end` (a multiple of kBlockBytes) and truncates the file behind it.
// `sync`: the records reach the medium before the footer, and the footer before the return. 0 or
// -errno.
int write_footer(Io& io, Segment& segment, std::span<const FooterEntry> entries,
                 uint64_t records_end, bool sync, uint64_t& file_bytes);

// Thread safe.
class SegmentSet {
 public:
  void add(std::shared_ptr<Segment> segment);
  std::shared_ptr<Segment> get(uint32_t number) const;  // nullptr: not there
  std::shared_ptr<Segment> oldest() const;
  std::vector<std::shared_ptr<Segment>> all() const;
  void resize(uint32_t number, uint64_t file_bytes);
  void remove(uint32_t number);
  uint64_t bytes() const;
  size_t count() const;

 private:
  mutable Mutex mutex_;
  std::map<uint32_t, std::shared_ptr<Segment>> segments_ GUARDED_BY(mutex_);
  uint64_t bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace peercached::disk
