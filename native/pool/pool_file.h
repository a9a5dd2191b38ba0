// The file that a warm pool lives in: opened, locked, sized, and judged by its superblock.
//
//   | pool: what Pool carves and peers read | span words, one per unit | superblock, 4 KiB |
//   0                                       pool_bytes                            file_bytes
//
// The file is on tmpfs or hugetlbfs, so it outlives the process and not the host. A process may
// die at any instruction; what it had stored by then is what the next one finds, in program order.
// So no sync, no journal: everything in the file is written so that each prefix of the stores is
// either understood or recognised as unfinished.
//
//   superblock   written last of all when a file is made: zero means unfinished
//   span word    one atomic store when a span is made (after its headers were made invalid) and
//                one when it is dissolved (before anything else may use its bytes): span_words.h
//   slot header  invalid, payload, header, valid: slot_header.h
//   page note    whose page it is, beside the payload; ties itself to the header: page_note.h
//
// The file is never unlinked and always mode 0600: it holds what workers stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "common/identity.h"
#include "common/types.h"

namespace peercached {

struct PoolFileConfig {
  std::string path;  // "": no file, anonymous memory
  // Of (cluster key, node id): somebody else's pages are not served. common/identity.h
  StoreIdentity identity{};
  std::string why_unusable;  // not empty: what the file holds must not be served
  // Why a file with this note must not be served; "" if it may. Empty: any may.
  std::function<std::string(const TierNote&)> why_not;
};

class PoolFile {
 public:
  // `size_bytes` is pool_size: of the whole file, rounded down to pages of its file system.
  // Throws std::runtime_error with the remedy: locked by another daemon, neither tmpfs nor
  // hugetlbfs, not a pool file, no room.
  PoolFile(const PoolFileConfig& config, uint64_t size_bytes, bool huge_pages);
  ~PoolFile();
  PoolFile(const PoolFile&) = delete;
  PoolFile& operator=(const PoolFile&) = delete;

  int fd() const { return fd_; }
  const std::string& path() const { return config_.path; }
  bool huge() const { return huge_; }
  uint64_t file_bytes() const { return file_bytes_; }
  uint64_t pool_bytes() const { return pool_bytes_; }
  // Whether what was in the file may be served; if not, the file is all zero by now.
  bool kept() const { return kept_; }
  // Why what was there was dropped; "" if it was kept, or nothing was there.
  const std::string& why_fresh() const { return why_fresh_; }

  // Of the mapped file: from now on it can be recovered.
  void sign(std::byte* mapped) const;
  uint64_t* span_words(std::byte* mapped) const;
  // Beside the superblock, one store for each word, the position last.
  void note_removals(std::byte* mapped, const TierNote& note) const;

 private:
  void open_and_lock();
  void judge(uint64_t found_bytes);
  TierNote read_note(uint64_t found_bytes) const;
  void check_room(uint64_t allocated_bytes) const;
  [[noreturn]] void fail(const std::string& what) const;

  const PoolFileConfig config_;
  const uint64_t wanted_bytes_;
  int fd_ = -1;
  bool huge_ = false;
  uint64_t page_bytes_ = 0;
  uint64_t file_bytes_ = 0, pool_bytes_ = 0;
  bool kept_ = false;
  std::string why_fresh_;
};

}  // namespace peercached
