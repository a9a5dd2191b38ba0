// Content of a segment: from its footer, or from its records if there is no valid footer.
#pragma once

#include <memory>
#include <vector>

#include "disk/segment.h"

namespace peercached::disk {

struct ScannedSegment {
  enum class Verdict : uint8_t {
    by_footer,   // sealed: the records themselves were not read
    by_records,  // every record was found and its payload verified
    unreadable,  // like by_records, but the disk failed: `entries` may be incomplete
    unfinished,  // the daemon or machine died while making it: no header, so no pages
    rejected,    // another identity, version or number, or destroyed, or its header
                 // is unreadable
    refused,     // this process may not open it now (see `error`); not the disk's fault
  };
  Verdict verdict = Verdict::rejected;
  int error = 0;                     // -errno, refused only
  std::shared_ptr<Segment> segment;  // open; nullptr if unfinished, rejected or refused
  bool writable = false;             // the file is open for writing
  std::vector<FooterEntry> entries;
  uint64_t records_end = kRecordsBegin;  // block after the last good record, if it was walked
  uint64_t corrupt = 0;                  // records with a good header and a bad payload
};

ScannedSegment scan_segment(Io& io, const std::string& folder, uint32_t number,
                            const Identity& identity);

}  // namespace peercached::disk
