// The tier's directory: locked by one daemon, and marked as belonging to one identity.
//
// It is held open, and its files are reached through that, not by its path: what is mounted over it
// or put in its place later gets none of the tier's files.
#pragma once

#include <string>
#include <vector>

#include "disk/format.h"
#include "disk/io.h"

namespace peercached::disk {

struct Directory {
  std::string path;                // for people
  File held;                       // the directory itself
  std::string inside;              // where its files are, as long as it is held
  File lock;                       // the directory is ours while this is open
  std::vector<uint32_t> segments;  // numbers of the files that are there, ascending
  TierNote removals;               // that it has seen; zero: none
};

// Makes the directory if only its last part is missing. Throws DiskError with the remedy.
Directory open_directory(Io& io, const std::string& path, const Identity& identity);

// Deletes all segments: none of their pages may be served.
void empty(Io& io, Directory& directory);

// In a Directory's `inside`. 0, or a negative errno.
int write_note(Io& io, const std::string& inside, const TierNote& note);

}  // namespace peercached::disk
