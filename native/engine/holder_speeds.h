// How slowly each holder answers READs, compared with the others.
//
// If a page has several holders, a reader takes it from a holder that answers quickly. A holder
// that many nodes read from becomes slow, so its readers spread over the other holders. This needs
// no message, and it works with RDMA, where a holder does not see that it is read.
//
// Each READ is compared with the usual time of READs of its size, from any holder. So the sizes of
// pages do not matter, nor does a bottleneck at the reader, which slows all holders down.
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
  static constexpr float kSlownessMax = 8;  // and 1 / 8 at least

  // Readers with different salts choose different holders of the same page.
  explicit HolderSpeeds(uint64_t salt);

  // READs of so many bytes from this holder, sent together, took so long.
  void note(HolderIndex holder, uint64_t bytes, std::chrono::nanoseconds took, TimePoint now);
  // 1: as usual; 4: its READs take four times as long.
  float slowness(HolderIndex holder, TimePoint now) const;
  // The holder with the lowest cost is the one to read this page from. Each holder of a page wins
  // with a probability that is inverse to its slowness (weighted rendezvous hashing). So readers do
  // not all turn to the quickest holder at once.
  double cost(const Digest& digest, HolderIndex holder, TimePoint now) const;

 private:
  struct Speed {
    std::atomic<float> slowness{1};
    std::atomic<TimePoint::rep> noted_at{0};
  };
  // Updates may get lost among concurrent ones. That only makes the mean a little slower.
  const uint64_t salt_;
  std::array<std::atomic<float>, 64> usual_ns_{};  // by the bits of the bytes read; 0: unknown
  std::vector<Speed> speeds_;                      // by holder
};

}  // namespace peercached
