// Histograms of latencies, cheap enough for every request.
//
// Log-linear: below 8, each microsecond has a bucket. Above that, each power of two has four, so a
// bucket's width is at most a quarter of its lower bound. A shift finds the bucket. Adding is two
// relaxed additions to memory that few threads share. A reader may see one addition without the
// other.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "common/clock.h"

namespace peercached {

// Bucket i holds times above its predecessor's bound, up to and including its own.
inline constexpr unsigned kLatencyOctaves = 25;  // up to 2^25 us = 33.6 s; the last takes the rest
inline constexpr size_t kLatencyBuckets = 8 + (kLatencyOctaves - 3) * 4 + 1;

// The bucket's upper bound in microseconds. Not for the last bucket, which has none.
constexpr uint64_t latency_bound_us(size_t bucket) {
  if (bucket < 8) return bucket + 1;
  const size_t octave = 3 + (bucket - 8) / 4, quarter = (bucket - 8) % 4;
  return (uint64_t{1} << octave) + (quarter + 1) * (uint64_t{1} << (octave - 2));
}

constexpr size_t latency_bucket(std::chrono::nanoseconds took) {
  const int64_t ns = took.count();
  // Minus 1, because bounds are inclusive: 1000 ns belong to the first bucket.
  const uint64_t us = ns <= 1 ? 0 : static_cast<uint64_t>(ns - 1) / 1000;
  if (us < 8) return us;
  const unsigned octave = static_cast<unsigned>(std::bit_width(us)) - 1;
  if (octave >= kLatencyOctaves) return kLatencyBuckets - 1;
  return 8 + (octave - 3) * 4 + ((us >> (octave - 2)) & 3);
}

struct LatencySnapshot {
  uint64_t sum_ns = 0;
  std::array<uint64_t, kLatencyBuckets> counts{};
};

// The stripe that a thread adds to: the same in all histograms.
inline unsigned latency_stripe() {
  static std::atomic<unsigned> threads{0};
  thread_local const unsigned own = threads.fetch_add(1, std::memory_order_relaxed);
  return own;
}

// `Stripes` copies keep threads from sharing cache lines. 1 is enough where few threads add now and
// then. Thread safe, without locks.
template <size_t Stripes>
class LatencyHistogram {
 public:
  void add(std::chrono::nanoseconds took) {
    Stripe& stripe = stripes_[Stripes == 1 ? 0 : latency_stripe() % Stripes];
    stripe.counts[latency_bucket(took)].fetch_add(1, std::memory_order_relaxed);
    stripe.sum_ns.fetch_add(took.count() < 0 ? 0 : static_cast<uint64_t>(took.count()),
                            std::memory_order_relaxed);
  }
  void add_since(TimePoint started) { add(Clock::now() - started); }

  LatencySnapshot snapshot() const {
    LatencySnapshot all;
    for (const Stripe& stripe : stripes_) {
      all.sum_ns += stripe.sum_ns.load(std::memory_order_relaxed);
      for (size_t i = 0; i < kLatencyBuckets; ++i) {
        all.counts[i] += stripe.counts[i].load(std::memory_order_relaxed);
      }
    }
    return all;
  }

 private:
  struct alignas(64) Stripe {
    std::atomic<uint64_t> sum_ns{0};
    std::array<std::atomic<uint64_t>, kLatencyBuckets> counts{};
  };
  std::array<Stripe, Stripes> stripes_;
};

// For whole requests: every worker's thread adds to it.
using RequestLatency = LatencyHistogram<8>;
// For the reads of one peer or rail.
using ReadLatency = LatencyHistogram<1>;

}  // namespace peercached
