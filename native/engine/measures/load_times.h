// How long loads took, and so how long the next ones will take.
//
// Each place that pages come from has its last loads: our pool, our disk, the pool and the disk of
// each peer. A line through their bytes and times gives a latency and a rate. The ratios of the
// times to that line give the spread. New loads count more than old ones.
//
// A place with few loads borrows from all places of its kind, and these borrow from a guess. The
// guess is quick, so somebody tries; one load then says more.
//
// A place that was slow is not loaded from any more, so nobody would see that it is quick again.
// Therefore knowledge is forgotten some time after the last load. Then one forecast, and no second
// one, is made without it. If its load is slow again, the time doubles.
//
// Thread safe. Memory: at most a few hundred bytes for each peer that we have loaded from.
#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "common/clock.h"
#include "common/types.h"
#include "engine/measures/latencies.h"

namespace peercached {

// Where pages are loaded from.
struct LoadPlace {
  Source source = Source::pool;
  HolderIndex holder = kSelfHolder;
  auto operator<=>(const LoadPlace&) const = default;
};

// The time of loads from one place: ratio * (latency + bytes * rate).
struct LoadCurve {
  double latency_us = 0, us_per_byte = 0;
  double ratio_p50 = 1, ratio_p90 = 1;
  uint64_t waiting_bytes = 0;  // that we load from there already

  double us(uint64_t bytes) const {
    return latency_us + us_per_byte * static_cast<double>(bytes + waiting_bytes);
  }
};

class LoadTimes {
 public:
  static constexpr auto kForgetMin = std::chrono::seconds(10);
  static constexpr auto kForgetMax = std::chrono::seconds(80);
  // A load that takes so many times as long as others of its kind is slow.
  static constexpr double kSlow = 4;

  // One load, from now on. It counts as waiting until its end.
  class Load {
   public:
    Load(LoadTimes& times, LoadPlace place, uint64_t bytes);
    ~Load();
    Load(Load&& other) noexcept;
    Load& operator=(Load&&) = delete;
    // It took so long. If fewer bytes have come, it was given up, and would have taken longer.
    void took(uint64_t came_bytes, std::chrono::nanoseconds time, TimePoint now);

   private:
    LoadTimes* times_;
    LoadPlace place_;
    uint64_t bytes_, ahead_bytes_;
  };

  // Also uses up the forecast that is made without old knowledge, see above.
  LoadCurve curve(LoadPlace place, TimePoint now);

 private:
  struct Took {
    double bytes = 0, us = 0;
  };
  struct Weighted {
    double weight, bytes, us;
  };
  template <size_t kLoads>
  struct Last {
    std::array<Took, kLoads> loads{};
    size_t count = 0;  // in all; the newest is at (count - 1) % kLoads
    size_t judged = 0;
    TimePoint noted_at{}, tried_at{};
    std::chrono::nanoseconds forget_after = kForgetMin;

    void add(Took took, TimePoint now);
    // Compares the loads since the last call with others. A forecast does it, so that a load costs
    // no fit.
    void judge(const LoadCurve& others);
    // False: forgotten, and this caller is the one that tries.
    bool counts(TimePoint now);
    // Appends the loads, the newest with `newest` of the weight. Returns the weight that is left.
    double weigh(double weight, double newest, std::vector<Weighted>& into) const;
  };
  struct OfPlace : Last<16> {
    uint64_t waiting_bytes = 0;
  };
  using OfKind = Last<32>;

  void note(LoadPlace place, Took took, TimePoint now);
  // All require mutex_.
  void judge(OfPlace& of_place, OfKind& kind, Source source) const;
  LoadCurve curve_of(const OfPlace* place, const OfKind* kind, Source source) const;
  static LoadCurve fitted(std::vector<Weighted>& loads);

  std::mutex mutex_;
  std::map<LoadPlace, OfPlace> places_;
  std::array<OfKind, kSourceNames.size()> kinds_;
};

// The loads of one get from peers. Pages of one holder may come in several reads, one after the
// other: together they are one load. One thread at a time.
class GetLoads {
 public:
  explicit GetLoads(LoadTimes& times) : times_(times) {}

  // `bytes` are to come from that place.
  void begin(LoadPlace place, uint64_t bytes);
  // So many have come by then. `late`: the time is over, and others have not.
  void came(LoadPlace place, uint64_t bytes, TimePoint at, bool late);
  // The get has ended. Tells how long each load took, unless it failed otherwise.
  void end();

 private:
  struct One {
    LoadTimes::Load load;
    uint64_t bytes, came_bytes = 0;
    TimePoint last{};
    bool late = false;
  };
  LoadTimes& times_;
  const TimePoint began_ = Clock::now();
  std::map<LoadPlace, One> loads_;
};

// The time to load pages together, as get does: from our pool, then from our disk, then from all
// peers at once.
class LoadForecast {
 public:
  LoadForecast(LoadTimes& times, TimePoint now) : times_(times), now_(now) {}

  void add(LoadPlace place, uint64_t bytes);
  uint32_t p50_us() const { return bounded(here_p50_us_ + longest_p50_us_); }
  uint32_t p90_us() const { return bounded(here_p90_us_ + longest_p90_us_); }

 private:
  struct Part {
    LoadCurve curve;
    uint64_t bytes = 0;
    double p50_us = 0, p90_us = 0;
  };
  static uint32_t bounded(double us);

  LoadTimes& times_;
  const TimePoint now_;
  std::map<LoadPlace, Part> parts_;
  std::map<HolderIndex, std::pair<double, double>> of_peer_;
  double here_p50_us_ = 0, here_p90_us_ = 0, longest_p50_us_ = 0, longest_p90_us_ = 0;
};

}  // namespace peercached
