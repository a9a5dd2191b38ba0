// Reads in flight of one thread: several with io_uring, else one at a time with pread.
//
// For one thread. A buffer must stay in place until its read has come out of wait().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "disk/io.h"

namespace peercached::disk {

class ReadLane {
 public:
  struct Done {
    unsigned slot;
    int error;  // 0 or -errno
  };
  virtual ~ReadLane() = default;

  virtual unsigned depth() const = 0;  // reads that should be in flight
  virtual unsigned slots() const = 0;  // most reads in flight
  // `slot` is below slots() and has no read in flight.
  virtual void start(unsigned slot, int fd, std::byte* to, size_t bytes, uint64_t offset) = 0;
  // Submits the started reads now; otherwise the next wait() does.
  virtual void submit() = 0;
  // Waits until at least one of the reads in flight is complete.
  virtual void wait(std::vector<Done>& done) = 0;
};

std::unique_ptr<ReadLane> make_plain_lane(Io& io);

// nullptr if the kernel does not allow io_uring (containers often forbid it), or in a build without
// liburing.
std::unique_ptr<ReadLane> make_uring_lane(unsigned depth, unsigned slots);

}  // namespace peercached::disk
