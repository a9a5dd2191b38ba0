// The tier's folder: locked by one daemon, and marked as belonging to one identity.
//
// The daemon keeps it open and reaches its files through that descriptor, not by path. So nothing
// mounted over it or put in its place later receives any of the tier's files.
#pragma once

#include <string>
#include <vector>

#include "disk/format.h"
#include "disk/io.h"

namespace peercached::disk {

struct Folder {
  std::string path;                // for messages
  File handle;                     // the folder itself
  std::string inside;              // path of its files while `handle` is open
  File lock;                       // the folder is ours while this is open
  std::vector<uint32_t> segments;  // numbers of the segment files found, ascending
  TierNote removals;               // newest removal it has seen; zero: none
  std::string emptied;             // why open_folder() deleted its segments; "": it did not
};

// Makes the folder if only its last part is missing. Throws DiskError with the remedy.
//
// A folder without superblock is taken if all its files are the tier's, under this identity. It was
// emptied while its daemon went on writing. The daemon's note of removals is gone with the
// superblock, so the segments are deleted.
Folder open_folder(Io& io, const std::string& path, const Identity& identity);

// Deletes all segments, because none of their pages may be served.
void empty(Io& io, Folder& folder);

// `inside` is Folder::inside. 0 or -errno.
int write_note(Io& io, const std::string& inside, const TierNote& note);

}  // namespace peercached::disk
