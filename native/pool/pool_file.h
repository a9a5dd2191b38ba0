// The file of a warm pool: opened, locked, sized, and judged by its superblock.
//
//   | pool: what Pool carves and peers read | span words, one per unit | superblock, 4 KiB |
//   0                                       pool_bytes                            file_bytes
//
// The file is on tmpfs or hugetlbfs, so it survives the process but not the host. A process may die
// at any instruction. The next process then sees all of its stores up to that point, in program
// order. So no sync and no journal are needed: after any prefix of the stores, each part of the
// file is either valid or recognisably unfinished.
//
//   superblock   written last when a file is made; zero means unfinished
//   span word    one atomic store makes a span, after its slot headers were invalidated; one more
//                dissolves it, before its bytes are reused: span_words.h
//   slot header  invalidated, then payload, header, valid: slot_header.h
//   page note    namespace of the page, tied to the header, behind the payload: page_note.h
//
// The file is never unlinked and always mode 0600, because it holds the workers' data.
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
  // Identifies (cluster key, node id). Pages of any other store are not served: common/identity.h
  StoreIdentity identity{};
  std::string why_unusable;  // not empty: the file's pages must not be served, and why
  // Returns why a file with this note must not be served, or "". Empty function: any file may.
  std::function<std::string(const TierNote&)> why_not;
};

class PoolFile {
 public:
  // `size_bytes` is pool_size: the size of the whole file, rounded down to pages of its file
  // system. Throws std::runtime_error with the remedy: locked by another daemon, neither tmpfs nor
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
  // Whether the found content may be served. If not, the file is all zero by now.
  bool kept() const { return kept_; }
  // Why the found content was dropped; "" if it was kept or the file was new.
  const std::string& why_fresh() const { return why_fresh_; }

  // Writes the superblock to the mapped file. From now on the file can be recovered.
  void sign(std::byte* mapped) const;
  uint64_t* span_words(std::byte* mapped) const;
  // Writes the note beside the superblock: one store per word, the position last.
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
