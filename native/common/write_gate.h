// A worker's right to silence when the *daemon* is the one that hangs.
//
// A client whose daemon does not answer (stopped, swapped out) gives up at its deadline and
// then owns its memory again; a daemon that wakes up later must not finish the old copy. So
// client and daemon share one small page (passed with each connection):
//
//   offset 0   u32 fence     set to 1 by the client when it gives up; never cleared
//   offset 64  u32 writers   threads of the daemon that are at work in worker memory right now
//
// Before it copies or receives a piece of at most kGatePieceBytes to or from worker memory, the
// daemon enters (writers + 1, then looks at fence); it leaves afterwards. The client sets fence
// and waits for writers to be 0: from then on it has silence. A client that finds writers stuck
// treats the region as lost. A `set` looks at fence once more after its copy: of a page that the
// client may have changed meanwhile nothing is kept.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace peercached {

inline constexpr size_t kGatePieceBytes = 256 * 1024;
inline constexpr size_t kGatePageBytes = 4096;

struct WriteGatePage {
  std::atomic<uint32_t> fence;
  char pad0[60];
  std::atomic<uint32_t> writers;
  char pad1[60];
};
static_assert(sizeof(WriteGatePage) == 128);

class WriteGate {
 public:
  explicit WriteGate(WriteGatePage* page) : page_(page) {}

  // False: the client has given up; write nothing.
  bool enter() {
    page_->writers.fetch_add(1, std::memory_order_seq_cst);
    if (page_->fence.load(std::memory_order_seq_cst) == 0) return true;
    leave();
    return false;
  }
  void leave() { page_->writers.fetch_sub(1, std::memory_order_seq_cst); }
  // The client has given up while a thread of the daemon is still at work in its memory.
  bool stuck() const { return fenced() && page_->writers.load(std::memory_order_relaxed) != 0; }
  bool fenced() const { return page_->fence.load(std::memory_order_acquire) != 0; }

 private:
  WriteGatePage* page_;
};

}  // namespace peercached
