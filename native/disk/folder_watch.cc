#include "disk/folder_watch.h"

#include <cerrno>

namespace peercached::disk {

std::string FolderWatch::trouble(const SegmentSet& segments) const {
  FileNode held, there;
  if (io_.look_at(folder_.held.fd(), held) != 0) return "";
  const int error = io_.look_at(folder_.path, there);
  if (error == -ENOENT || error == -ENOTDIR) {
    return "the directory is gone; put it back (is it mounted?), or restart the daemon";
  }
  if (error != 0) return "";  // a failing disk: the next write reports it
  if (!there.is(held)) {
    return "another directory is at that path now; put the former one back (is it mounted?), or "
           "restart the daemon";
  }
  bool deleted = is_deleted(folder_.lock.fd());
  for (const auto& segment : segments.all()) {
    deleted = deleted || (!segment->unlinked && is_deleted(segment->file.fd()));
  }
  if (deleted) return "its files were deleted by somebody else; restart the daemon";
  return "";
}

bool FolderWatch::is_deleted(int fd) const {
  FileNode node;
  return io_.look_at(fd, node) == 0 && node.names == 0;
}

}  // namespace peercached::disk
