#include "engine/measures/load_times.h"

#include <algorithm>
#include <utility>

namespace peercached {
namespace {

// The share of the newest load in all knowledge. Above 1/10, so that the p90 has it at once.
constexpr double kNewestOfPlace = 0.15;
constexpr double kNewestOfKind = 0.08;
// A load that was given up says little about its end, if nothing came.
constexpr double kLongerMax = 16;
constexpr double kLongerUnknown = 2;
constexpr double kShortestUs = 1;

// Loads of one size do not tell latency and rate apart. Then the time is taken for a rate. This is
// the spread of the sizes (its square, relative) that counts as much as that assumption.
constexpr double kDoubt = 0.05;

struct Guess {
  double latency_us, us_per_byte;
};
// By Source. Quicker than most hardware.
constexpr std::array<Guess, kSourceNames.size()> kGuesses = {{
    {5, 1e-4},       // nowhere
    {5, 1e-4},       // pool: 10 GB/s
    {1'000, 1e-3},   // disk: 1 GB/s
    {1'000, 1e-3},   // peer: 1 GB/s
    {3'000, 2e-3},   // peer_disk
    {30'000, 4e-3},  // store: 250 MB/s
}};
constexpr double kGuessSmall = 64 << 10, kGuessLarge = 16 << 20;
constexpr double kGuessSlow = 3;  // one load of five

}  // namespace

// --- loads

LoadTimes::Load::Load(LoadTimes& times, LoadPlace place, uint64_t bytes)
    : times_(&times), place_(place), bytes_(bytes) {
  std::lock_guard lock(times.mutex_);
  OfPlace& of_place = times.places_[place];
  ahead_bytes_ = of_place.waiting_bytes;
  of_place.waiting_bytes += bytes;
}

LoadTimes::Load::Load(Load&& other) noexcept
    : times_(std::exchange(other.times_, nullptr)),
      place_(other.place_),
      bytes_(other.bytes_),
      ahead_bytes_(other.ahead_bytes_) {}

LoadTimes::Load::~Load() {
  if (times_ == nullptr) return;
  std::lock_guard lock(times_->mutex_);
  times_->places_[place_].waiting_bytes -= bytes_;
}

void LoadTimes::Load::took(uint64_t came_bytes, std::chrono::nanoseconds time, TimePoint now) {
  if (bytes_ == 0 || time.count() <= 0) return;
  double us = std::max(kShortestUs, static_cast<double>(time.count()) / 1e3);
  if (came_bytes < bytes_) {
    const double longer = static_cast<double>(bytes_) / static_cast<double>(came_bytes);
    us *= came_bytes == 0 ? kLongerUnknown : std::min(longer, kLongerMax);
  }
  times_->note(place_, {static_cast<double>(bytes_ + ahead_bytes_), us}, now);
}

// --- knowledge

template <size_t kLoads>
void LoadTimes::Last<kLoads>::add(Took took, TimePoint now) {
  loads[count++ % kLoads] = took;
  noted_at = now;
}

template <size_t kLoads>
void LoadTimes::Last<kLoads>::judge(const LoadCurve& others) {
  for (judged = std::max(judged, count - std::min(count, kLoads)); judged < count; ++judged) {
    const Took& took = loads[judged % kLoads];
    const double usual_us = others.ratio_p50 * others.us(static_cast<uint64_t>(took.bytes));
    forget_after = took.us > kSlow * usual_us
                       ? std::min<std::chrono::nanoseconds>(2 * forget_after, kForgetMax)
                       : std::chrono::nanoseconds(kForgetMin);
  }
}

template <size_t kLoads>
bool LoadTimes::Last<kLoads>::counts(TimePoint now) {
  if (count == 0 || now - std::max(noted_at, tried_at) <= forget_after) return true;
  tried_at = now;
  return false;
}

template <size_t kLoads>
double LoadTimes::Last<kLoads>::weigh(double weight, double newest,
                                      std::vector<Weighted>& into) const {
  for (size_t age = 0; age < std::min(count, kLoads); ++age) {
    const Took& took = loads[(count - 1 - age) % kLoads];
    into.push_back({weight * newest, took.bytes, took.us});
    weight -= weight * newest;
  }
  return weight;
}

void LoadTimes::note(LoadPlace place, Took took, TimePoint now) {
  std::lock_guard lock(mutex_);
  places_[place].add(took, now);
  kinds_[static_cast<size_t>(place.source)].add(took, now);
}

void LoadTimes::judge(OfPlace& of_place, OfKind& kind, Source source) const {
  if (kind.judged != kind.count) kind.judge(curve_of(nullptr, nullptr, source));
  if (of_place.judged != of_place.count) of_place.judge(curve_of(nullptr, &kind, source));
}

LoadCurve LoadTimes::curve(LoadPlace place, TimePoint now) {
  std::lock_guard lock(mutex_);
  OfPlace& of_place = places_[place];
  OfKind& kind = kinds_[static_cast<size_t>(place.source)];
  judge(of_place, kind, place.source);
  const bool place_counts = of_place.counts(now);
  const bool kind_counts = (place_counts && of_place.count != 0) || kind.counts(now);
  LoadCurve curve =
      curve_of(place_counts ? &of_place : nullptr, kind_counts ? &kind : nullptr, place.source);
  curve.waiting_bytes = of_place.waiting_bytes;
  return curve;
}

LoadCurve LoadTimes::curve_of(const OfPlace* place, const OfKind* kind, Source source) const {
  std::vector<Weighted> loads;
  double left = 1;
  if (place != nullptr) left = place->weigh(left, kNewestOfPlace, loads);
  if (kind != nullptr) left = kind->weigh(left, kNewestOfKind, loads);
  // Without this, a guess with little weight decides, because its sizes are unlike all others.
  if (kind != nullptr && kind->count >= kind->loads.size()) return fitted(loads);
  const Guess& guess = kGuesses[static_cast<size_t>(source)];
  const double large_us = guess.latency_us + guess.us_per_byte * kGuessLarge;
  loads.push_back({0.4 * left, kGuessSmall, guess.latency_us + guess.us_per_byte * kGuessSmall});
  loads.push_back({0.4 * left, kGuessLarge, large_us});
  loads.push_back({0.2 * left, kGuessLarge, kGuessSlow * large_us});
  return fitted(loads);
}

// Least squares, with no rate below 0 and no latency below 0.
LoadCurve LoadTimes::fitted(std::vector<Weighted>& loads) {
  double weight = 0, bytes = 0, us = 0, spread = 0, together = 0;
  for (const Weighted& one : loads) weight += one.weight;
  for (Weighted& one : loads) one.weight /= weight;
  for (const Weighted& one : loads) {
    bytes += one.weight * one.bytes;
    us += one.weight * one.us;
  }
  for (const Weighted& one : loads) {
    spread += one.weight * (one.bytes - bytes) * (one.bytes - bytes);
    together += one.weight * (one.bytes - bytes) * (one.us - us);
  }
  const double steepest = us / bytes;
  LoadCurve curve;
  const double doubt = kDoubt * bytes * bytes;
  curve.us_per_byte = std::clamp((together + doubt * steepest) / (spread + doubt), 0.0, steepest);
  curve.latency_us = std::max(0.0, us - curve.us_per_byte * bytes);

  for (Weighted& one : loads)
    one.us /= std::max(kShortestUs, curve.latency_us + curve.us_per_byte * one.bytes);
  std::ranges::sort(loads, {}, &Weighted::us);  // now ratios
  double below = 0;
  curve.ratio_p50 = curve.ratio_p90 = loads.back().us;
  for (auto one = loads.rbegin(); one != loads.rend(); ++one) {
    if (below < 0.1) curve.ratio_p90 = one->us;
    if (below < 0.5) curve.ratio_p50 = one->us;
    below += one->weight;
  }
  return curve;
}

// --- gets

void GetLoads::begin(LoadPlace place, uint64_t bytes) {
  if (bytes == 0) return;
  loads_.try_emplace(place, One{LoadTimes::Load(times_, place, bytes), bytes});
}

void GetLoads::came(LoadPlace place, uint64_t bytes, TimePoint at, bool late) {
  const auto found = loads_.find(place);
  if (found == loads_.end()) return;
  One& one = found->second;
  one.came_bytes += bytes;
  one.last = std::max(one.last, at);
  one.late = one.late || late;
}

void GetLoads::end() {
  for (auto& [place, one] : loads_) {
    const uint64_t came = std::min(one.came_bytes, one.bytes);
    if (came == one.bytes || one.late) one.load.took(came, one.last - began_, one.last);
  }
  loads_.clear();
}

// --- forecasts

void LoadForecast::add(LoadPlace place, uint64_t bytes) {
  const auto [found, added] = parts_.try_emplace(place);
  Part& part = found->second;
  if (added) part.curve = times_.curve(place, now_);
  part.bytes += bytes;
  const double us = part.curve.us(part.bytes);
  const double p50_us =
      part.curve.ratio_p50 * us - std::exchange(part.p50_us, part.curve.ratio_p50 * us);
  const double p90_us =
      part.curve.ratio_p90 * us - std::exchange(part.p90_us, part.curve.ratio_p90 * us);
  if (place.holder == kSelfHolder) {
    here_p50_us_ += p50_us;
    here_p90_us_ += p90_us;
    return;
  }
  auto& [peer_p50_us, peer_p90_us] = of_peer_[place.holder];
  longest_p50_us_ = std::max(longest_p50_us_, peer_p50_us += p50_us);
  longest_p90_us_ = std::max(longest_p90_us_, peer_p90_us += p90_us);
}

uint32_t LoadForecast::bounded(double us) {
  return static_cast<uint32_t>(std::clamp<double>(us, 0, UINT32_MAX));
}

}  // namespace peercached
