// Checks that the tier's folder is still the one that was opened, at its path and with its
// files. It may have been unmounted, mounted over, renamed, replaced or emptied. Open files keep
// working then. But a restart would not find them, and another daemon could start at the same path.
#pragma once

#include <string>

#include "disk/folder.h"
#include "disk/segment.h"

namespace peercached::disk {

// Returns the problem and its remedy as a sentence, or "". Blocks on the disk; call it on the
// housekeeping thread.
std::string folder_trouble(Io& io, const Folder& folder, const SegmentSet& segments);

}  // namespace peercached::disk
