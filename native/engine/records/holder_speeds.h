// How slowly each holder answers READs, compared with the others.
//
// If a page has several holders, a reader takes it from a holder that answers quickly. A holder
// that many nodes read from becomes slow, so its readers spread over the other holders. This needs
// no message, and it works with RDMA, where a holder does not see that it is read.
//
// Each READ is compared with the usual time of READs of its size, from any holder. So the sizes of
// pages do not matter, nor does a bottleneck at the reader, which slows all holders down. READs
// that take far longer than usual hardly change the usual time, even if they are many.
//
// Thread safe.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "common/clock.h"
#include "common/types.h"

namespace peercached {

class HolderSpeeds {
 public:
  // A holder that we have not read from for this long counts as usual again, so it gets a chance.
  static constexpr auto kForget = std::chrono::seconds(10);
  static constexpr auto kMoment = std::chrono::milliseconds(100);
  static constexpr float kQuick = 1.5;
  static constexpr float kSlownessMax = 16;  // and 1 / 16 at least
  // Two readers of one holder wait twice as long, and need no help.
  static constexpr float kCrowded = 2.5;
  // A quicker READ is not worth the effort.
  static constexpr auto kCrowdedFor = std::chrono::milliseconds(5);

  // Readers with different salts choose different holders of the same page.
  explicit HolderSpeeds(uint64_t salt);

  // READs of so many bytes from this holder, sent together, took so long.
  void note(HolderIndex holder, uint64_t bytes, std::chrono::nanoseconds took, TimePoint now);
  // Whether many nodes seem to read from this holder: READs of so many bytes, from this one and
  // perhaps others, took far longer than usual.
  bool crowded(uint64_t bytes, std::chrono::nanoseconds took) const;
  // 1: as usual; 4: its READs take four times as long.
  float slowness(HolderIndex holder, TimePoint now) const;
  // Whether READs from this holder took about as long as usual a moment ago.
  bool quick(HolderIndex holder, TimePoint now) const;
  // The holder with the lowest cost is the one to read this page from. Each holder of a page wins
  // with a probability that is inverse to its slowness (weighted rendezvous hashing). So readers do
  // not all turn to the quickest holder at once. `pages`: how many pages this holder gives already
  // in this read. The more, the higher the cost.
  double cost(const Digest& digest, HolderIndex holder, TimePoint now, double pages = 0) const;
  // Readers with different salts read the pages of a crowded holder in different orders.
  uint64_t place(const Digest& digest) const;

 private:
  struct Speed {
    std::atomic<float> slowness{1};
    std::atomic<TimePoint> noted_at{TimePoint{}};
  };
  // Updates may get lost among concurrent ones. That only makes the mean a little slower.
  // The usual time of so many bytes, by READs of that size and larger ones. 0: unknown.
  float usual_ns(uint64_t bytes) const;

  const uint64_t salt_;
  std::array<std::atomic<float>, 64> ns_per_byte_{};  // by the bits of the bytes read; 0: unknown
  std::vector<Speed> speeds_;                         // by holder
};

}  // namespace peercached
