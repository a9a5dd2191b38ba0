// READs from one port of this machine to another, without headers, checksums or another process.
// The benchmarks compare the engine with these, not with ib_read_bw. That always reads the same
// stretch of memory, which stays in the caches. These READs cover as much memory as the engine
// does.
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
    RailPolicy policy;  // chooses its GID
  };
  // READs of `read_bytes` from `source` to the same offset of `dest`, over `queue_pairs`. Both have
  // the same size, at least `read_bytes`, and must outlive this object. Throws std::runtime_error
  // if a port cannot be used or memory cannot be registered.
  BareReads(const End& source_end, const End& reader_end, std::span<std::byte> source,
            std::span<std::byte> dest, uint32_t read_bytes, unsigned queue_pairs);

  // Makes `count` READs at consecutive offsets, then from offset 0 again. Returns the duration in
  // seconds. Not thread safe. Throws std::runtime_error if one fails: then this object is of no
  // more use.
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
  const unsigned depth_;  // READs in flight on each queue pair
  Rail holder_, reader_;
  Registration source_key_, dest_key_;
  CompletionEvents events_;
  CompletionQueue queue_, holder_queue_;
  std::vector<Pair> pairs_;
  Patience patience_;
  uint64_t next_ = 0;  // offset of the next READ, in bytes
  bool armed_ = false;
};

}  // namespace peercached::rdma
