// Finds the valid pages in a warm pool's file. Several threads check every slot of every span.
//
// It does not know the pool; pool/restore.cc puts the pages back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/types.h"
#include "pool/span_words.h"

namespace peercached {

// Outcome of recovering a pool file, once at start.
struct RecoveryReport {
  std::string file;       // "": the pool has no file
  std::string why_fresh;  // not "": why the file's content was dropped unread
  uint64_t pages = 0;     // served again
  uint64_t bytes = 0;     // of their payloads
  double seconds = 0;
  // Counts of the pages not served, by reason.
  uint64_t damaged_spans = 0;
  uint64_t damaged_headers = 0;
  uint64_t damaged_payloads = 0;  // valid header, but the bytes have another checksum
  uint64_t unfinished = 0;        // no valid note: the process died during the commit
  uint64_t cleared = 0;           // epoch is over, or too many namespaces
  uint64_t removed = 0;           // removed since it was set
  uint64_t duplicates = 0;
};

struct RecoveredPage {
  SlotHeader header;
  Digest namespace_id;
  uint64_t epoch = 0;
  Position set_at = 0;
  uint64_t stamp = 0;
  uint32_t span = 0;  // index into `spans`
  uint32_t slot = 0;  // within the span
};

// Returns, in no order, the pages with a sealed header, a matching payload checksum and a matching
// note. Invalidates the headers of all others.
std::vector<RecoveredPage> whole_pages(std::byte* base, std::span<const SpanPlace> spans,
                                       unsigned threads, RecoveryReport& report);

}  // namespace peercached
