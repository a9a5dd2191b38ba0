// READs from one port of this machine to another with nothing around them: no headers, no sums, no
// other process. What the benchmarks compare the engine with, for ib_read_bw always reads one and
// the same stretch of memory, which stays in the caches; these read as much as the engine does.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transfer/rdma/patience.h"
#include "transfer/rdma/rail.h"

namespace peercached::rdma {

class BareReads {
 public:
  struct End {
    Port port;
    RailPolicy policy;  // for its GID
  };
  // READs of `read_bytes` from `source` to the same place of `dest`, over `queue_pairs`. Both hold
  // as many bytes, at least one READ's, and outlive this. Throws std::runtime_error where the
  // ports cannot be used or the memory cannot be registered.
  BareReads(const End& source_end, const End& reader_end, std::span<std::byte> source,
            std::span<std::byte> dest, uint32_t read_bytes, unsigned queue_pairs);

  // Makes `count` READs, place after place, and again from the first. Seconds that took. One
  // thread at a time. Throws std::runtime_error when one fails; then this is of no more use.
  double read(uint64_t count);

 private:
  struct Pair {
    QueuePair holder, reader;
  };

  void connect(Pair& pair);
  void post(size_t pair);
  void sleep();

  const std::span<std::byte> source_, dest_;
  const uint32_t read_bytes_;
  const unsigned depth_;  // READs under way on each pair
  Rail holder_, reader_;
  Registration source_key_, dest_key_;
  CompletionEvents events_;
  CompletionQueue queue_, holder_queue_;
  std::vector<Pair> pairs_;
  Patience patience_;
  uint64_t next_ = 0;  // its place, in bytes
  bool armed_ = false;
};

}  // namespace peercached::rdma
