// Which pages of a warm pool's file are whole: every slot of every span, by several threads.
//
// Knows nothing of the pool that they will be put into; pool/restore.cc does that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/types.h"
#include "pool/span_words.h"

namespace peercached {

// What became of the pages of a pool file, once at start.
struct RecoveryReport {
  std::string file;       // "": the pool lives in no file
  std::string why_fresh;  // not "": what was there was not looked at, and why
  uint64_t pages = 0;     // served again
  uint64_t bytes = 0;     // of their payloads
  double seconds = 0;
  // Of the rest, why not.
  uint64_t damaged_spans = 0;
  uint64_t damaged_headers = 0;
  uint64_t damaged_payloads = 0;  // whole header, but the bytes have another checksum
  uint64_t unfinished = 0;        // no whole note: the process ended in the middle of its commit
  uint64_t cleared = 0;  // of an epoch that is over, or of more namespaces than there may be
  uint64_t removed = 0;  // since it was set
  uint64_t duplicates = 0;
};

struct RecoveredPage {
  SlotHeader header;
  Digest namespace_id;
  uint64_t epoch = 0;
  Position set_at = 0;
  uint64_t stamp = 0;
  uint32_t span = 0;  // index in the spans given
  uint32_t slot = 0;  // within it
};

// Whole means: a sealed header, a payload of its checksum, and a note that belongs to it. What has
// a header and is not whole is made invalid. In no order.
std::vector<RecoveredPage> whole_pages(std::byte* base, std::span<const SpanPlace> spans,
                                       unsigned threads, RecoveryReport& report);

}  // namespace peercached
