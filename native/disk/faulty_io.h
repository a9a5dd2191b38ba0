// A disk that fails by plan: for tests of whole daemons (the config key `faults`).
//
//   seed=7,disk_write_eio=0.1,disk_stall=1,disk_stall_ms=5000
//
// Probabilities are from 0 to 1, per system call on a segment file. Other files of the directory do
// not fail. Names other than seed and disk_* belong to the network's plan (transfer/fault/fault.h)
// and are ignored here.
#pragma once

#include <memory>
#include <string>

#include "disk/io.h"

namespace peercached::disk {

struct DiskFaults {
  uint64_t seed = 1;
  double write_eio = 0;      // disk_write_eio
  double write_short = 0;    // disk_write_short: writes only half
  double no_space = 0;       // disk_no_space: ENOSPC, when writing or making a segment
  double sync_eio = 0;       // disk_sync_eio
  double read_eio = 0;       // disk_read_eio
  double read_corrupt = 0;   // disk_read_corrupt: flips one bit of the data read
  double stall = 0;          // disk_stall: the call takes stall_ms longer
  double read_stall = 0;     // disk_read_stall: the same, for reads only
  double write_stall = 0;    // disk_write_stall: the same, for writes and syncs only
  uint64_t stall_ms = 1000;  // disk_stall_ms
  bool any() const {
    return write_eio + write_short + no_space + sync_eio + read_eio + read_corrupt + stall +
               read_stall + write_stall >
           0;
  }
};

// Throws std::invalid_argument naming the bad part.
DiskFaults parse_disk_faults(const std::string& text);

// `inner` must outlive it.
std::unique_ptr<Io> make_faulty_io(Io& inner, const DiskFaults& faults);

}  // namespace peercached::disk
