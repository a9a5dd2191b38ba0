// Whether the tier's directory is still the one that was opened: at its path, and with its files.
// It may have been unmounted, mounted over, renamed, replaced or emptied. Its files stay as they
// are for who has them open, but nobody would find them after a restart, and another daemon could
// begin at the same path.
#pragma once

#include <string>

#include "disk/directory.h"
#include "disk/segment.h"

namespace peercached::disk {

class DirectoryWatch {
 public:
  DirectoryWatch(Io& io, const Directory& directory) : io_(io), directory_(directory) {}

  // What is wrong and what to do, for people; empty: nothing. Waits for the disk. On the
  // housekeeping thread.
  std::string trouble(const SegmentSet& segments) const;

 private:
  bool is_deleted(int fd) const;

  Io& io_;
  const Directory& directory_;
};

}  // namespace peercached::disk
