#include "disk/folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/error_text.h"
#include "disk/disk_tier.h"
#include "disk/segment.h"

namespace peercached::disk {
namespace {

constexpr const char* kLockName = "lock";
constexpr const char* kFormatName = "format";
constexpr const char* kNewFormatName = "format.new";
constexpr const char* kRemovalsName = "removals";

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw DiskError("disk_path " + path + ": " + why);
}

std::string remedy_at_start(int error) {
  switch (error) {
    case -EROFS:
      return "; mount it writable, or, under systemd, name it in ReadWritePaths= of the unit";
    case -EACCES:
    case -EPERM:
      return "; let the daemon's user write there";
    default:
      return "";
  }
}

[[noreturn]] void refuse(const std::string& path, const std::string& what, int error) {
  refuse(path, what + ": " + error_text(-error) + remedy_at_start(error));
}

// Opens the folder, and makes it if it does not exist.
File hold(Io& io, const std::string& path) {
  const int error = io.make_directory(path);
  if (error == -ENOENT) refuse(path, "its parent directory does not exist; make it, or mount it");
  if (error < 0 && error != -EEXIST) refuse(path, "it cannot be made", error);
  const int fd = io.open(path, O_RDONLY | O_DIRECTORY, 0);
  if (fd == -ENOTDIR) refuse(path, "is not a directory");
  if (fd < 0) refuse(path, "it cannot be opened", fd);
  return {io, fd};
}

File take_lock(Io& io, const Folder& folder) {
  const std::string& path = folder.path;
  const int fd = io.open(folder.inside + "/" + kLockName, O_RDWR | O_CREAT, 0600);
  if (fd < 0) refuse(path, "the daemon cannot write there", fd);
  File file(io, fd);
  const int error = io.lock(fd);
  if (error == -EWOULDBLOCK) {
    std::byte text[16] = {};
    const ssize_t bytes = io.pread(fd, text, sizeof text - 1, 0);
    const std::string owner = bytes > 0 ? reinterpret_cast<const char*>(text) : "?";
    refuse(path, "another daemon uses it (process " + owner +
                     "); give each daemon a disk_path of its own");
  }
  if (error < 0) refuse(path, "it cannot be locked", error);
  const std::string owner = std::to_string(::getpid());
  io.truncate(fd, 0);
  write_all(io, fd, reinterpret_cast<const std::byte*>(owner.data()), owner.size(), 0);
  return file;
}

// Makes a file that a power cut leaves whole or does not leave at all.
template <typename Block>
int create(Io& io, const std::string& inside, const std::string& name, const Block& block) {
  const std::string new_name = inside + "/" + kNewFormatName;
  const int fd = io.open(new_name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0) return fd;
  File file(io, fd);
  int error = write_all(io, fd, reinterpret_cast<const std::byte*>(&block), sizeof block, 0);
  if (error == 0) error = io.fdatasync(fd);
  if (error == 0) error = io.rename(new_name, name);
  if (error == 0) error = io.sync_directory(inside);
  return error;
}

void write_superblock(Io& io, const Folder& folder, const Identity& identity) {
  Superblock block;
  block.identity = identity;
  seal(block);
  const int error = create(io, folder.inside, folder.inside + "/" + kFormatName, block);
  if (error != 0) refuse(folder.path, "the daemon cannot write there", error);
}

// False: there is no such file. Refuses the folder if the file is damaged.
template <typename Block>
bool read_block(Io& io, const Folder& folder, const std::string& name, Block& block) {
  const int fd = io.open(folder.inside + "/" + name, O_RDONLY, 0);
  if (fd == -ENOENT) return false;
  if (fd < 0) refuse(folder.path, "its file '" + name + "' cannot be read", fd);
  File file(io, fd);
  const int error = read_all(io, fd, reinterpret_cast<std::byte*>(&block), sizeof block, 0);
  if (error != 0 || !sealed(block)) {
    refuse(folder.path,
           "its file '" + name + "' is damaged; delete what is in the directory to start afresh");
  }
  return true;
}

// Whether a daemon of this identity made the segment. True also for a segment without content.
bool is_ours(Io& io, const Folder& folder, uint32_t number, const Identity& identity) {
  const int fd = io.open(segment_path(folder.inside, number), O_RDONLY, 0);
  if (fd < 0) return false;
  const File file(io, fd);
  SegmentHeader header;
  const ssize_t bytes = io.pread(fd, reinterpret_cast<std::byte*>(&header), sizeof header, 0);
  if (bytes != sizeof header) return bytes == 0;
  return sealed(header) && header.identity == identity;
}

// False: there is no superblock. Refuses the folder if the superblock does not match.
bool check_superblock(Io& io, const Folder& folder, const Identity& identity) {
  const std::string& path = folder.path;
  Superblock block;
  if (!read_block(io, folder, kFormatName, block)) return false;
  if (block.version != kFormatVersion) {
    refuse(path, "it was written in version " + std::to_string(block.version) +
                     " of the format, and this daemon knows version " +
                     std::to_string(kFormatVersion) +
                     "; delete what is in it to start afresh, or choose another disk_path");
  }
  if (block.identity != identity) {
    refuse(path,
           "its pages belong to another node or cluster (node id or cluster secret differ); delete "
           "what is in it to start afresh, or choose another disk_path");
  }
  return true;
}

}  // namespace

Folder open_folder(Io& io, const std::string& path, const Identity& identity) {
  if (path.empty()) throw DiskError("disk_path is empty: name a directory for the disk tier");
  Folder folder;
  folder.path = path;
  folder.handle = hold(io, path);
  // This name follows the open folder itself, wherever it is mounted or renamed to.
  folder.inside = "/proc/self/fd/" + std::to_string(folder.handle.fd());
  folder.lock = take_lock(io, folder);

  std::vector<std::string> names;
  const int error = io.list(folder.inside, names);
  if (error != 0) refuse(path, "it cannot be listed", error);
  std::string stranger;
  for (const std::string& name : names) {
    const uint32_t number = segment_number(name);
    if (number != 0) folder.segments.push_back(number);
    const bool known = number != 0 || name == kLockName || name == kFormatName ||
                       name == kNewFormatName || name == kRemovalsName || name == "lost+found" ||
                       name.starts_with('.');
    if (!known) stranger = name;
  }
  std::ranges::sort(folder.segments);
  if (!check_superblock(io, folder, identity)) {
    for (const uint32_t number : folder.segments) {
      if (!is_ours(io, folder, number, identity)) stranger = segment_path("", number).substr(1);
    }
    if (!stranger.empty()) {
      refuse(path, "it has files (" + stranger +
                       ") but no file 'format', so it is not the disk tier's; name an empty or a "
                       "new directory");
    }
    if (!folder.segments.empty()) {
      empty(io, folder);
      folder.emptied = "its files had been deleted while a daemon used them";
    }
    write_superblock(io, folder, identity);
  }
  RemovalsNote removals;
  if (read_block(io, folder, kRemovalsName, removals)) folder.removals = removals.note;
  return folder;
}

void empty(Io& io, Folder& folder) {
  for (const uint32_t number : folder.segments) {
    const int error = io.unlink(segment_path(folder.inside, number));
    if (error != 0 && error != -ENOENT)
      refuse(folder.path, "segment " + std::to_string(number) + " cannot be deleted", error);
  }
  if (const int error = io.sync_directory(folder.inside); error != 0)
    refuse(folder.path, "it cannot be synced", error);
  folder.segments.clear();
}

int write_note(Io& io, const std::string& inside, const TierNote& note) {
  RemovalsNote block{note, 0};
  seal(block);
  const std::string name = inside + "/" + kRemovalsName;
  const int fd = io.open(name, O_WRONLY, 0600);
  if (fd == -ENOENT) return create(io, inside, name, block);
  if (fd < 0) return fd;
  File file(io, fd);
  return write_all(io, fd, reinterpret_cast<const std::byte*>(&block), sizeof block, 0);
}

}  // namespace peercached::disk
