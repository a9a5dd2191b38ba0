// Where the spans of a warm pool begin: one 64-bit word per unit of the pool, nonzero where a span
// begins. Each word is one atomic store, so a crash never leaves half of it.
//
//   bits 0..19   payload size of its slots, in steps of 4 KiB
//   bits 20..47  number of slots
//   bits 48..63  checksum over these and the unit
//
// Not thread safe: the pool's mutex guards it.
#pragma once

#include <cstdint>
#include <vector>

namespace peercached {

struct SpanPlace {
  uint64_t offset = 0;  // from the pool's start
  uint64_t stride_bytes = 0;
  uint64_t slots = 0;
};

class SpanWords {
 public:
  // `words`: one per unit of the pool, in the file.
  SpanWords(uint64_t* words, uint64_t pool_bytes) : words_(words), pool_bytes_(pool_bytes) {}

  void made(const SpanPlace& span);
  void dissolved(uint64_t offset);

  // All spans, by offset. Wipes and counts words that cannot be a span.
  std::vector<SpanPlace> read(uint64_t& damaged);

 private:
  uint64_t* const words_;
  const uint64_t pool_bytes_;
};

}  // namespace peercached
