#include "disk/folder_watch.h"

#include <cerrno>

namespace peercached::disk {

std::string folder_trouble(Io& io, const Folder& folder, const SegmentSet& segments) {
  const auto is_deleted = [&](int fd) {
    FileNode node;
    return io.look_at(fd, node) == 0 && node.names == 0;
  };
  FileNode held, there;
  if (io.look_at(folder.handle.fd(), held) != 0) return "";
  const int error = io.look_at(folder.path, there);
  if (error == -ENOENT || error == -ENOTDIR) {
    return "the directory is gone; put it back (is it mounted?), or restart the daemon";
  }
  if (error != 0) return "";  // a failing disk: the next write reports it
  if (!there.is(held)) {
    return "another directory is at that path now; put the former one back (is it mounted?), or "
           "restart the daemon";
  }
  bool deleted = is_deleted(folder.lock.fd());
  for (const auto& segment : segments.all()) {
    deleted = deleted || (!segment->unlinked && is_deleted(segment->file.fd()));
  }
  if (deleted) return "its files were deleted by somebody else; restart the daemon";
  return "";
}

}  // namespace peercached::disk
