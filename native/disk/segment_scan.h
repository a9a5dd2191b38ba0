// What a segment holds: from its footer, or from its records where there is no good footer.
#pragma once

#include <memory>
#include <vector>

#include "disk/segment.h"

namespace peercached::disk {

struct ScannedSegment {
  enum class Verdict : uint8_t {
    by_footer,   // sealed: the records themselves were not looked at
    by_records,  // every record was found and its payload verified
    unreadable,  // like by_records, but the disk failed: it may hold more than `entries`
    unfinished,  // made when the daemon or the machine died: without a header, so without pages
    rejected,    // not a segment of this identity, version and number, or destroyed, or the disk
                 // does not even give its header
    refused,     // this process may not open it, or not now: `error`; the disk is not to blame
  };
  Verdict verdict = Verdict::rejected;
  int error = 0;                     // -errno, refused only
  std::shared_ptr<Segment> segment;  // open; nullptr if unfinished, rejected or refused
  bool writable = false;             // the file is open for writing
  std::vector<FooterEntry> entries;
  uint64_t records_end = kRecordsBegin;  // block after the last good record, if it was walked
  uint64_t corrupt = 0;                  // records with a good header and a bad payload
};

ScannedSegment scan_segment(Io& io, const std::string& directory, uint32_t number,
                            const Identity& identity);

}  // namespace peercached::disk
