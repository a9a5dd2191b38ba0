#include "removals/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "common/copy.h"
#include "common/error_text.h"

namespace peercached {

namespace {

constexpr uint64_t kMagic = 0x534c41564f4d4552;  // "REMOVALS"
constexpr uint32_t kFormat = 2;
constexpr uint64_t kHeaderBytes = 4096;
constexpr uint64_t kReserveBytes = 1 << 20;
constexpr size_t kPendingMax = 1 << 16;
constexpr size_t kReadEntries = 1 << 15;

struct RemovedHash {
  size_t operator()(const Removed& r) const noexcept { return table_hash(r.digest) ^ r.removal; }
};
using RemovedSet = std::unordered_set<Removed, RemovedHash>;

void keep_once(std::vector<Removed>& removed) {
  RemovedSet seen;
  std::erase_if(removed, [&](const Removed& one) { return !seen.insert(one).second; });
}

struct Header {
  uint64_t magic = kMagic;
  uint32_t format = kFormat;
  uint32_t reserved = 0;
  StoreIdentity identity{};
  uint64_t id = 0;
  Position floor = 0;  // the first entry has position floor + 1
  uint64_t check = 0;  // XXH3-64 of the bytes before
};
static_assert(sizeof(Header) == 56);

struct Entry {
  Position position = 0;
  Removed removed;
  uint64_t check = 0;  // XXH3-64 of the bytes before, mixed with the journal's id
};
static_assert(sizeof(Entry) == 40);

uint64_t check_of(const Header& header) { return checksum(&header, offsetof(Header, check)); }
uint64_t check_of(const Entry& entry, uint64_t id) {
  return checksum(&entry, offsetof(Entry, check)) ^ id;
}

uint64_t random_number() {
  uint64_t number = 0;
  while (number == 0) {
    if (::getrandom(&number, sizeof number, 0) != sizeof number) number = 0;
  }
  return number;
}

// Returns 0 or an errno.
int write_all(int fd, const void* bytes, size_t count, uint64_t offset) {
  const auto* at = static_cast<const std::byte*>(bytes);
  while (count > 0) {
    const ssize_t done = ::pwrite(fd, at, count, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return done < 0 ? errno : EIO;
    at += done;
    count -= static_cast<size_t>(done);
    offset += static_cast<uint64_t>(done);
  }
  return 0;
}

// Returns the bytes read: fewer than asked for at the file's end. Throws what `fail` throws.
template <typename Fail>
size_t read_some(int fd, void* bytes, size_t count, uint64_t offset, Fail&& fail) {
  size_t got = 0;
  while (got < count) {
    const ssize_t done = ::pread(fd, static_cast<std::byte*>(bytes) + got, count - got,
                                 static_cast<off_t>(offset + got));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail("cannot be read: " + error_text(errno));
    if (done == 0) break;
    got += static_cast<size_t>(done);
  }
  return got;
}

// Visits the whole entries behind `floor`, in order. Stops at the first invalid one; returns the
// count.
template <typename Visit, typename Fail>
uint64_t for_each_entry(int fd, uint64_t id, Position floor, Visit&& visit, Fail&& fail) {
  std::vector<Entry> entries(kReadEntries);
  for (uint64_t count = 0;;) {
    const size_t bytes = read_some(fd, entries.data(), entries.size() * sizeof(Entry),
                                   kHeaderBytes + count * sizeof(Entry), fail);
    const size_t whole = bytes / sizeof(Entry);
    for (size_t i = 0; i < whole; ++i) {
      const Entry& entry = entries[i];
      if (entry.position != floor + count + 1 || entry.check != check_of(entry, id)) return count;
      visit(entry);
      ++count;
    }
    if (whole < entries.size()) return count;
  }
}

}  // namespace

bool Past::is_void(const Digest& digest, Position set_at) const {
  if (set_at < floor_ || set_at > last_) return true;
  const auto found = latest_.find(digest);
  return found != latest_.end() && found->second > set_at;
}

Journal::Journal(const JournalConfig& config) : config_(config) {
  if (config_.path.empty()) return;
  try {
    open_and_lock();
    if (read_header())
      read_entries();
    else
      begin();
    reserve_room();
  } catch (...) {
    if (fd_ >= 0) ::close(fd_);
    throw;
  }
}

Journal::~Journal() {
  write_waiting();
  if (fd_ >= 0) ::close(fd_);
}

void Journal::fail(const std::string& what) const {
  throw std::runtime_error("the journal of removals, " + config_.path + ", " + what);
}

void Journal::open_and_lock() {
  fd_ = ::open(config_.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd_ < 0)
    fail("cannot be opened: " + error_text(errno) + ": make its folder, writable for us");
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      fail("is in use by another daemon with this node_id: stop that one, or set another node_id");
    }
    fail("cannot be locked: " + error_text(errno));
  }
}

void Journal::begin() {
  id_ = random_number();
  if (::ftruncate(fd_, 0) != 0) fail("cannot be emptied: " + error_text(errno));
  if (const int error = write_header(fd_, 0); error != 0)
    fail("cannot be written: " + error_text(error) + ": make room for it");
  if (::fdatasync(fd_) != 0) fail("cannot be synced: " + error_text(errno));
}

// False: not ours, or damaged. Tiers that were used with it are emptied then (why_not).
bool Journal::read_header() {
  Header header;
  const size_t bytes =
      read_some(fd_, &header, sizeof header, 0, [&](const std::string& what) { fail(what); });
  if (bytes < sizeof header || header.magic != kMagic || header.check != check_of(header) ||
      header.format != kFormat || header.identity != config_.identity)
    return false;
  id_ = header.id;
  floor_ = header.floor;
  return true;
}

void Journal::read_entries() {
  written_ = for_each_entry(
      fd_, id_, floor_, [](const Entry&) {}, [&](const std::string& what) { fail(what); });
  last_.store(floor_ + written_, std::memory_order_release);
  // Entries behind a torn one were not answered. Cut off, lest they are read behind new entries.
  const uint64_t end = kHeaderBytes + written_ * sizeof(Entry);
  if (::ftruncate(fd_, static_cast<off_t>(end)) != 0) fail("cannot be cut: " + error_text(errno));
}

// Reserves disk space for the next entries, so that a full file system does not undo removals.
void Journal::reserve_room() {
  const uint64_t end = kHeaderBytes + written_ * sizeof(Entry);
  if (end + kReserveBytes / 2 < reserved_bytes_) return;
  if (::fallocate(fd_, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(end), kReserveBytes) == 0)
    reserved_bytes_ = end + kReserveBytes;
}

std::string Journal::why_not(const TierNote& tier) const {
  if (tier.journal == 0) return "";
  if (tier.journal != id_)
    return "it was last used with another state_dir, which knows what was removed from it";
  if (tier.position > last())
    return "state_dir is older than it (from a backup?), and does not know all that was removed";
  return "";
}

bool Journal::append(std::span<const Removed> removed) {
  if (config_.path.empty()) {
    last_.fetch_add(removed.size());
    return true;
  }
  {
    MutexLock lock(pending_mutex_);
    pending_.insert(pending_.end(), removed.begin(), removed.end());
  }
  return write_waiting();
}

bool Journal::forget() {
  MutexLock lock(mutex_);
  if (config_.path.empty()) return true;
  {
    MutexLock pending_lock(pending_mutex_);
    pending_.clear();
  }
  forgot_pending_ = true;
  id_ = random_number();
  return write_pending();
}

bool Journal::write_waiting() {
  MutexLock lock(mutex_);
  return write_pending();
}

bool Journal::write_pending() {
  const std::vector<Removed> some = pending();
  if (some.empty() && !forgot_pending_) return true;
  int error = 0;
  if (forgot_pending_ || written_ + some.size() > config_.entries_max) error = rewrite();
  if (error == 0) error = write_entries(fd_, some, written_);
  if (error == 0) {
    written_ += some.size();
    last_.store(floor_ + written_, std::memory_order_release);
    reserve_room();
  }
  MutexLock lock(pending_mutex_);
  if (error != 0) {
    problem_ = error_text(error);
    if (pending_.size() > kPendingMax) keep_once(pending_);
    if (pending_.size() > kPendingMax) {
      pending_.clear();
      forgot_pending_ = true;  // the floor rises above them once the file can be written
    }
    return false;
  }
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<ptrdiff_t>(some.size()));
  problem_.clear();
  return true;
}

std::vector<Removed> Journal::pending() const {
  MutexLock lock(pending_mutex_);
  return pending_;
}

// Writes behind the first `count` entries of the file. Returns 0 or an errno.
int Journal::write_entries(int fd, std::span<const Removed> removed, uint64_t count) const {
  std::vector<Entry> entries(removed.size());
  for (size_t i = 0; i < removed.size(); ++i) {
    entries[i].position = floor_ + count + i + 1;
    entries[i].removed = removed[i];
    entries[i].check = check_of(entries[i], id_);
  }
  return write_all(fd, entries.data(), entries.size() * sizeof(Entry),
                   kHeaderBytes + count * sizeof(Entry));
}

// Concurrent callers share one flush: each that waited for the mutex finds its entries on the
// medium.
bool Journal::sync() {
  if (!config_.sync || config_.path.empty()) return true;
  const Position wanted = last();
  MutexLock one_at_a_time(sync_mutex_);
  if (synced_.load(std::memory_order_acquire) >= wanted) return true;
  int fd = -1;
  Position upto = 0;
  {
    MutexLock lock(mutex_);
    upto = floor_ + written_;
    fd = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);  // rewrite() may close ours meanwhile
  }
  const bool done = fd >= 0 && ::fdatasync(fd) == 0;
  if (fd >= 0) ::close(fd);
  if (done) synced_.store(upto, std::memory_order_release);
  return done && upto >= wanted;
}

// Replaces the file by one with the newer half of its entries. The new file has none if some
// pending entries had to be forgotten.
int Journal::rewrite() {
  const uint64_t kept = forgot_pending_ ? 0 : written_ / 2;
  // The forgotten entries were behind all that are in the file, so the floor rises above those,
  // too.
  const Position floor = floor_ + written_ - kept + (forgot_pending_ ? 1 : 0);
  std::vector<Entry> entries(kept);
  try {
    const uint64_t from = kHeaderBytes + (written_ - kept) * sizeof(Entry);
    const size_t bytes = kept * sizeof(Entry);
    const auto throws = [&](const std::string& what) { fail(what); };
    if (read_some(fd_, entries.data(), bytes, from, throws) != bytes) return EIO;
  } catch (const std::runtime_error&) {
    return EIO;
  }
  const std::string draft = config_.path + ".new";
  const int fd = ::open(draft.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return errno;
  int error = ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  if (error == 0) error = write_header(fd, floor);
  if (error == 0)
    error = write_all(fd, entries.data(), entries.size() * sizeof(Entry), kHeaderBytes);
  if (error == 0 && ::fdatasync(fd) != 0) error = errno;
  if (error == 0 && ::rename(draft.c_str(), config_.path.c_str()) != 0) error = errno;
  if (error != 0) {
    ::close(fd);
    return error;
  }
  ::close(std::exchange(fd_, fd));
  floor_ = floor;
  written_ = kept;
  reserved_bytes_ = 0;
  forgot_pending_ = false;
  return 0;
}

int Journal::write_header(int fd, Position floor) const {
  std::array<std::byte, kHeaderBytes> block{};
  Header header;
  header.identity = config_.identity;
  header.id = id_;
  header.floor = floor;
  header.check = check_of(header);
  std::memcpy(block.data(), &header, sizeof header);
  return write_all(fd, block.data(), block.size(), 0);
}

Past Journal::past() const {
  MutexLock lock(mutex_);
  Past past;
  past.floor_ = floor_;
  past.last_ = last();
  if (fd_ < 0) return past;
  past.latest_.reserve(written_);
  for_each_entry(
      fd_, id_, floor_,
      [&](const Entry& entry) { past.latest_[entry.removed.digest] = entry.position; },
      [&](const std::string& what) { fail(what); });
  return past;
}

std::optional<std::vector<Removed>> Journal::since(Position position) const {
  MutexLock lock(mutex_);
  if (fd_ < 0 || position < floor_ || forgot_pending_) return std::nullopt;
  std::vector<Removed> removed;
  const auto take = [&](const Removed& one) {
    if (one.removal != 0) removed.push_back(one);
  };
  try {
    for_each_entry(
        fd_, id_, floor_,
        [&](const Entry& entry) {
          if (entry.position > position) take(entry.removed);
        },
        [&](const std::string& what) { fail(what); });
  } catch (const std::runtime_error&) {
    return std::nullopt;
  }
  for (const Removed& one : pending()) take(one);
  return removed;
}

std::vector<Removed> Journal::unknown(std::span<const Removed> removed) const {
  std::vector<Removed> in_order(removed.begin(), removed.end());
  RemovedSet unknown(removed.begin(), removed.end());
  {
    MutexLock lock(mutex_);
    for (const Removed& one : pending()) unknown.erase(one);
    try {
      if (fd_ >= 0 && !forgot_pending_)
        for_each_entry(
            fd_, id_, floor_, [&](const Entry& entry) { unknown.erase(entry.removed); },
            [&](const std::string& what) { fail(what); });
    } catch (const std::runtime_error&) {  // it is told again what it could not read
    }
  }
  std::erase_if(in_order, [&](const Removed& one) { return unknown.erase(one) == 0; });
  return in_order;
}

JournalStats Journal::stats() const {
  MutexLock lock(pending_mutex_);
  return {last(), floor_, written_, pending_.size(), problem_};
}

}  // namespace peercached
