// How a client stops the daemon's access to its memory when the *daemon* hangs.
//
// If the daemon does not answer (stopped, swapped out), the client gives up at its deadline and
// then owns its memory again. A daemon that wakes up later must not finish the old copy. So client
// and daemon share one small page, passed with each connection:
//
//   offset 0   u32 fence     the client sets it to 1 when it gives up; never cleared
//   offset 64  u32 writers   threads of the daemon that are in worker memory right now
//
// The daemon works in pieces of at most kGatePieceBytes. Before each piece it enters: it adds 1 to
// writers, then checks fence. Afterwards it leaves. The client sets fence and waits until writers
// is 0. From then on the daemon does not touch its memory. A client that finds writers stuck treats
// the region as lost. A `set` checks fence once more after its copy, and keeps nothing of a page
// that the client may have changed meanwhile.
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

  // False: the client has given up; do not touch its memory.
  bool enter() {
    page_->writers.fetch_add(1, std::memory_order_seq_cst);
    if (page_->fence.load(std::memory_order_seq_cst) == 0) return true;
    leave();
    return false;
  }
  void leave() { page_->writers.fetch_sub(1, std::memory_order_seq_cst); }
  // The client has given up, but a thread of the daemon is still in its memory.
  bool stuck() const { return fenced() && page_->writers.load(std::memory_order_relaxed) != 0; }
  bool fenced() const { return page_->fence.load(std::memory_order_acquire) != 0; }

 private:
  WriteGatePage* page_;
};

}  // namespace peercached
