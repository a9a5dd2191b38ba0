// Where the spans of a warm pool are: one 64-bit word per unit of the pool, not zero where a span
// begins. Each is one atomic store, so it is there or not, never half.
//
//   bits 0..19   payload steps of 4 KiB of its slots
//   bits 20..47  slots
//   bits 48..63  check over these and the unit
//
// Whoever carves or dissolves spans holds the pool's mutex. Not thread safe beyond that.
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

  // All spans, by offset. What cannot be one is wiped and counted.
  std::vector<SpanPlace> read(uint64_t& damaged);

 private:
  uint64_t* const words_;
  const uint64_t pool_bytes_;
};

}  // namespace peercached
