// The reader's half of one answer, as a state machine without I/O.
//
// It says where the next bytes of the stream belong. First comes the preamble, then header and
// payload of each page that is ok, straight into the ops. Its caller says how many bytes came. It
// never asks for a byte beyond the answer.
#pragma once

#include <sys/uio.h>

#include <span>
#include <vector>

#include "transfer/tcp/frames.h"
#include "transfer/transfer.h"

namespace peercached::tcp {

class AnswerReader {
 public:
  // Expects the answer to `request`, which asked for exactly these pages. Call it only when done().
  void expect(uint64_t request, std::span<ReadOp> ops);
  bool done() const { return !in_preamble_ && next_ == ops_.size(); }

  // Fills `out` with places for at most `bytes_max` bytes and returns the number of places. Returns
  // 0 only when done().
  size_t places(std::span<iovec> out, size_t bytes_max);

  // The first `bytes` of those places are filled. Refused pages get the holder's status; complete
  // pages are appended to `landed`. Returns nullptr, or the error in the answer: then the stream
  // cannot be used any more.
  const char* took(size_t bytes, std::vector<ReadOp*>& landed);

  // The page that is partly here, and how much of its payload; {nullptr, 0} if there is none.
  struct Arriving {
    const ReadOp* op;
    size_t payload_bytes;
  };
  Arriving arriving() const {
    if (in_preamble_ || have_ <= sizeof(SlotHeader)) return {nullptr, 0};
    return {&ops_[next_], have_ - sizeof(SlotHeader)};
  }

 private:
  const char* read_preamble();

  uint64_t request_ = 0;
  std::span<ReadOp> ops_;
  bool in_preamble_ = false;
  size_t have_ = 0;  // bytes of the preamble, or of header and payload of the op `next_`
  size_t next_ = 0;
  std::vector<std::byte> preamble_;
  std::vector<PageStatus> statuses_;
};

}  // namespace peercached::tcp
