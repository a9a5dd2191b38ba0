#include "pool/pool_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "common/copy.h"
#include "common/round_up.h"
#include "common/types.h"
#include "pool/memory_limits.h"
#include "pool/page_note.h"
#include "pool/space.h"

namespace peercached {

namespace {

constexpr uint32_t kFormat = 2;
constexpr char kMagic[8] = {'P', 'E', 'E', 'R', 'P', 'O', 'O', 'L'};
constexpr uint64_t kSuperblockBytes = kMemoryPageBytes;

struct Superblock {
  char magic[8];
  uint32_t format;
  uint32_t header_version;
  uint64_t file_bytes;
  uint64_t pool_bytes;
  uint32_t unit_bytes;
  uint32_t note_bytes;
  StoreIdentity identity;
  uint64_t check;  // XXH3-64 of the bytes before
};
static_assert(sizeof(Superblock) == 64);

// Offset in the superblock's page.
constexpr uint64_t kTierNoteAt = 128;

uint64_t check_of(const Superblock& block) { return checksum(&block, offsetof(Superblock, check)); }

// One word for every unit of the file. A few are never used, which keeps the rule simple.
uint64_t span_word_bytes(uint64_t file_bytes) {
  return round_up(file_bytes / kUnitBytes * sizeof(uint64_t), kMemoryPageBytes);
}

}  // namespace

PoolFile::PoolFile(const PoolFileConfig& config, uint64_t size_bytes, bool huge_pages)
    : config_(config), wanted_bytes_(size_bytes) {
  try {
    open_and_lock();
    if (huge_pages && !huge_)
      fail("is on tmpfs, but huge_pages is on: name a file on a hugetlbfs mount, or turn " +
           std::string("huge_pages off"));
    check_pool_size(size_bytes, page_bytes_);
    file_bytes_ = size_bytes / page_bytes_ * page_bytes_;
    pool_bytes_ = file_bytes_ - span_word_bytes(file_bytes_) - kSuperblockBytes;
    struct stat found {};
    if (fstat(fd_, &found) != 0) fail("cannot be looked at: " + last_error());
    judge(static_cast<uint64_t>(found.st_size));
    uint64_t allocated_bytes = static_cast<uint64_t>(found.st_blocks) * 512;
    if (!kept_) {
      // Erase all former content: peers may read any byte of the pool.
      if (ftruncate(fd_, 0) != 0) fail("cannot be emptied: " + last_error());
      allocated_bytes = 0;
    }
    check_room(allocated_bytes);
    if (ftruncate(fd_, static_cast<off_t>(file_bytes_)) != 0)
      fail("cannot be sized to pool_size = " + described(file_bytes_) + ": " + last_error());
  } catch (...) {
    if (fd_ >= 0) close(fd_);
    throw;
  }
}

PoolFile::~PoolFile() { close(fd_); }

void PoolFile::fail(const std::string& what) const {
  throw std::runtime_error("pool_file " + config_.path + " " + what);
}

void PoolFile::open_and_lock() {
  fd_ = open(config_.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (fd_ < 0) fail("cannot be opened: " + last_error() + ": make its folder, writable for us");
  struct stat found {};
  if (fstat(fd_, &found) != 0) fail("cannot be looked at: " + last_error());
  if (!S_ISREG(found.st_mode)) fail("is not a file: name one on tmpfs or hugetlbfs");
  struct statfs where {};
  if (fstatfs(fd_, &where) != 0) fail("cannot be looked at: " + last_error());
  huge_ = static_cast<uint64_t>(where.f_type) == HUGETLBFS_MAGIC;
  if (!huge_ && static_cast<uint64_t>(where.f_type) != TMPFS_MAGIC)
    fail("is neither on tmpfs nor on hugetlbfs: put it on one of them, in /dev/shm for example");
  page_bytes_ = huge_ ? static_cast<uint64_t>(where.f_bsize) : kMemoryPageBytes;
  if (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      fail("is in use by another daemon: give each daemon a pool_file of its own");
    fail("cannot be locked: " + last_error());
  }
  if (found.st_uid != geteuid())
    fail("belongs to user " + std::to_string(found.st_uid) + ", not to us: remove it");
  if ((found.st_mode & 07777) != 0600 && fchmod(fd_, 0600) != 0)
    fail("cannot be made private: " + last_error());
}

void PoolFile::judge(uint64_t found_bytes) {
  if (found_bytes == 0) return;
  Superblock block{};
  if (found_bytes < kSuperblockBytes ||
      pread(fd_, &block, sizeof block, static_cast<off_t>(found_bytes - kSuperblockBytes)) !=
          static_cast<ssize_t>(sizeof block))
    fail("is something else, " + std::to_string(found_bytes) + " bytes: remove it or name another");
  const Superblock zero{};
  if (std::memcmp(&block, &zero, sizeof block) == 0) {
    why_fresh_ = "it was never finished";
    return;
  }
  if (std::memcmp(block.magic, kMagic, sizeof kMagic) != 0)
    fail("is not a pool file: remove it or name another one");
  if (block.format != kFormat || block.header_version != kSlotVersion ||
      block.unit_bytes != kUnitBytes || block.note_bytes != sizeof(PageNote))
    why_fresh_ = "it is of another version of peercached (format " + std::to_string(block.format) +
                 "." + std::to_string(block.header_version) + ", ours is " +
                 std::to_string(kFormat) + "." + std::to_string(kSlotVersion) + ")";
  else if (block.check != check_of(block))
    why_fresh_ = "its superblock is damaged";
  else if (block.identity != config_.identity)
    why_fresh_ = "it is of another node_id or another cluster secret";
  else if (block.file_bytes != file_bytes_ || found_bytes != file_bytes_ ||
           block.pool_bytes != pool_bytes_)
    why_fresh_ = "it was made with pool_size = " + described(block.file_bytes) + ", which is now " +
                 described(file_bytes_);
  else if (!config_.why_unusable.empty())
    why_fresh_ = config_.why_unusable;
  else if (config_.why_not)
    why_fresh_ = config_.why_not(read_note(found_bytes));
  kept_ = why_fresh_.empty();
}

TierNote PoolFile::read_note(uint64_t found_bytes) const {
  TierNote note;
  const uint64_t at = found_bytes - kSuperblockBytes + kTierNoteAt;
  if (pread(fd_, &note, sizeof note, static_cast<off_t>(at)) != static_cast<ssize_t>(sizeof note))
    fail("cannot be read: " + last_error());
  return note;
}

void PoolFile::check_room(uint64_t allocated_bytes) const {
  const uint64_t more_bytes = file_bytes_ - std::min(allocated_bytes, file_bytes_);
  struct statfs where {};
  if (fstatfs(fd_, &where) != 0) fail("cannot be looked at: " + last_error());
  const uint64_t free_bytes =
      static_cast<uint64_t>(where.f_bavail) * static_cast<uint64_t>(where.f_bsize);
  // A mount without a size limit reports 0 total blocks.
  if (where.f_blocks != 0 && more_bytes > free_bytes)
    fail("needs " + described(more_bytes) + " more for pool_size, but its file system has only " +
         described(free_bytes) +
         (huge_ ? " in free huge pages: reserve more of them, raise its size= option,"
                : " free: raise its size= option,") +
         " or lower pool_size");
  if (!huge_) check_available(wanted_bytes_, more_bytes);
}

void PoolFile::sign(std::byte* mapped) const {
  Superblock block{};
  std::memcpy(block.magic, kMagic, sizeof kMagic);
  block.format = kFormat;
  block.header_version = kSlotVersion;
  block.file_bytes = file_bytes_;
  block.pool_bytes = pool_bytes_;
  block.unit_bytes = kUnitBytes;
  block.note_bytes = sizeof(PageNote);
  block.identity = config_.identity;
  block.check = check_of(block);
  std::memcpy(mapped + file_bytes_ - kSuperblockBytes, &block, sizeof block);
}

void PoolFile::note_removals(std::byte* mapped, const TierNote& note) const {
  auto* words = reinterpret_cast<uint64_t*>(mapped + file_bytes_ - kSuperblockBytes + kTierNoteAt);
  std::atomic_ref<uint64_t>(words[0]).store(note.journal, std::memory_order_release);
  std::atomic_ref<uint64_t>(words[1]).store(note.position, std::memory_order_release);
}

uint64_t* PoolFile::span_words(std::byte* mapped) const {
  return reinterpret_cast<uint64_t*>(mapped + pool_bytes_);
}

}  // namespace peercached
