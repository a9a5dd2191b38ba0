// Latency histograms: each time is counted once, in the bucket that contains it.
#include "common/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

namespace peercached {
namespace {

using std::chrono::nanoseconds;

TEST(Histogram, LatencyFallsBetweenTheBoundsOfItsBucket) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 1'000'000; ++i) {
    const auto ns = static_cast<int64_t>(random() >> (random() % 60 + 4));
    const size_t bucket = latency_bucket(nanoseconds(ns));
    ASSERT_LT(bucket, kLatencyBuckets);
    if (bucket + 1 < kLatencyBuckets) {
      ASSERT_LE(ns, static_cast<int64_t>(latency_bound_us(bucket)) * 1000) << ns;
    }
    if (bucket != 0) {
      ASSERT_GT(ns, static_cast<int64_t>(latency_bound_us(bucket - 1)) * 1000) << ns;
    }
  }
}

TEST(Histogram, BoundsAreInclusiveAndRise) {
  for (size_t bucket = 0; bucket + 1 < kLatencyBuckets; ++bucket) {
    const auto bound = nanoseconds(latency_bound_us(bucket) * 1000);
    EXPECT_EQ(latency_bucket(bound), bucket);
    EXPECT_EQ(latency_bucket(bound + nanoseconds(1)), bucket + 1);
  }
  EXPECT_EQ(latency_bound_us(kLatencyBuckets - 2), uint64_t{1} << kLatencyOctaves);
}

TEST(Histogram, EveryPowerOfTwoIsABound) {
  std::vector<uint64_t> bounds;
  for (size_t bucket = 0; bucket + 1 < kLatencyBuckets; ++bucket) {
    bounds.push_back(latency_bound_us(bucket));
  }
  for (unsigned octave = 0; octave <= kLatencyOctaves; ++octave) {
    EXPECT_EQ(std::count(bounds.begin(), bounds.end(), uint64_t{1} << octave), 1) << octave;
  }
}

TEST(Histogram, ExtremeTimesGoToTheOuterBuckets) {
  LatencyHistogram<1> histogram;
  histogram.add(nanoseconds::min());
  histogram.add(nanoseconds::max());
  const LatencySnapshot snapshot = histogram.snapshot();
  EXPECT_EQ(snapshot.counts.front(), 1u);
  EXPECT_EQ(snapshot.counts.back(), 1u);
}

TEST(Histogram, NothingIsLostAmongThreads) {
  constexpr unsigned kThreads = 12, kAdds = 20'000;
  RequestLatency histogram;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&histogram] {
      for (unsigned i = 0; i < kAdds; ++i) histogram.add(nanoseconds(i));
    });
  }
  for (auto& thread : threads) thread.join();
  const LatencySnapshot snapshot = histogram.snapshot();
  EXPECT_EQ(std::accumulate(snapshot.counts.begin(), snapshot.counts.end(), uint64_t{0}),
            uint64_t{kThreads} * kAdds);
  EXPECT_EQ(snapshot.sum_ns, uint64_t{kThreads} * kAdds * (kAdds - 1) / 2);
}

}  // namespace
}  // namespace peercached
