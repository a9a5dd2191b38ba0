#include "transfer/tcp/answer_reader.h"

#include <algorithm>
#include <cassert>

namespace peercached::tcp {

void AnswerReader::expect(uint64_t request, std::span<ReadOp> ops) {
  assert(done() && !ops.empty());
  request_ = request;
  ops_ = ops;
  in_preamble_ = true;
  have_ = 0;
  next_ = 0;
  preamble_.resize(preamble_bytes(ops.size()));
  statuses_.assign(ops.size(), PageStatus::pending);
}

size_t AnswerReader::places(std::span<iovec> out, size_t bytes_max) {
  size_t used = 0;
  auto place = [&](void* start, size_t whole_bytes, size_t& skip_bytes) {
    if (skip_bytes >= whole_bytes) {
      skip_bytes -= whole_bytes;
      return;
    }
    const size_t bytes = std::min(whole_bytes - skip_bytes, bytes_max);
    if (bytes == 0 || used == out.size()) return;
    out[used++] = {static_cast<std::byte*>(start) + skip_bytes, bytes};
    bytes_max -= bytes;
    skip_bytes = 0;
  };
  size_t skip_bytes = have_;
  if (in_preamble_) {
    // The places after it depend on the statuses in it.
    place(preamble_.data(), preamble_.size(), skip_bytes);
    return used;
  }
  for (size_t i = next_; i < ops_.size() && bytes_max != 0 && used != out.size(); ++i) {
    if (statuses_[i] != PageStatus::ok) continue;
    place(&ops_[i].header, sizeof(SlotHeader), skip_bytes);
    place(ops_[i].dest, ops_[i].length, skip_bytes);
  }
  return used;
}

const char* AnswerReader::took(size_t bytes, std::vector<ReadOp*>& landed) {
  while (bytes != 0) {
    assert(!done());
    const size_t whole_bytes =
        in_preamble_ ? preamble_.size() : sizeof(SlotHeader) + ops_[next_].length;
    const size_t taken = std::min(bytes, whole_bytes - have_);
    have_ += taken;
    bytes -= taken;
    if (have_ < whole_bytes) break;
    have_ = 0;
    if (in_preamble_) {
      in_preamble_ = false;
      if (const char* wrong = read_preamble()) return wrong;
    } else {
      landed.push_back(&ops_[next_++]);
    }
    while (next_ < ops_.size() && statuses_[next_] != PageStatus::ok) ++next_;  // the refused
  }
  return nullptr;
}

const char* AnswerReader::read_preamble() {
  uint64_t following_bytes = 0;
  const char* wrong = parse_pages(preamble_, request_, statuses_, following_bytes);
  if (wrong != nullptr) return wrong;
  uint64_t expected_bytes = 0;
  for (size_t i = 0; i < ops_.size(); ++i) {
    if (statuses_[i] == PageStatus::ok) expected_bytes += sizeof(SlotHeader) + ops_[i].length;
  }
  if (following_bytes != expected_bytes) return "answer's length does not fit its page statuses";
  for (size_t i = 0; i < ops_.size(); ++i) {
    if (statuses_[i] != PageStatus::ok) ops_[i].status = statuses_[i];
  }
  return nullptr;
}

}  // namespace peercached::tcp
