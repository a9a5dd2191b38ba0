#include "engine/records/holder_speeds.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/records/nodes.h"

namespace peercached {
namespace {

// The weight of one READ in the mean of its size. That mean falls more quickly than it rises.
constexpr float kIfQuicker = 1.0f / 8;
constexpr float kIfSlower = 1.0f / 16;
constexpr float kIfCrowded = 1.0f / 1024;
constexpr float kOfHolder = 1.0f / 4;  // and in the mean of its holder
// Small READs take longer for each byte.
constexpr float kLatencyNs = 1e6;

size_t size_class(uint64_t bytes) { return static_cast<size_t>(std::bit_width(bytes)) - 1; }

// splitmix64, by Sebastiano Vigna (public domain).
uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// In (0, 1].
double fraction(uint64_t x) { return static_cast<double>((x >> 11) + 1) * 0x1p-53; }

}  // namespace

HolderSpeeds::HolderSpeeds(uint64_t salt) : salt_(mixed(salt)), speeds_(kNodesMax) {}

void HolderSpeeds::note(HolderIndex holder, uint64_t bytes, std::chrono::nanoseconds took,
                        TimePoint now) {
  if (holder >= speeds_.size() || bytes == 0 || took.count() <= 0) return;
  const auto ns = static_cast<float>(took.count());
  const float expected = usual_ns(bytes);
  const float sample =
      expected == 0 ? 1 : std::clamp(ns / expected, 1 / kSlownessMax, kSlownessMax);
  const float of_mean = sample < 1 ? kIfQuicker : sample < kCrowded ? kIfSlower : kIfCrowded;
  const float before = expected == 0 ? ns : expected;
  ns_per_byte_[size_class(bytes)].store(
      (before + of_mean * (sample * before - before)) / static_cast<float>(bytes),
      std::memory_order_relaxed);

  const float slowness = this->slowness(holder, now);
  Speed& speed = speeds_[holder];
  speed.slowness.store(slowness + kOfHolder * (sample - slowness), std::memory_order_relaxed);
  speed.noted_at.store(now, std::memory_order_relaxed);
}

float HolderSpeeds::usual_ns(uint64_t bytes) const {
  float usual = 0;
  const size_t own = size_class(bytes);
  for (size_t size = own; size < ns_per_byte_.size(); ++size) {
    const float of_byte = ns_per_byte_[size].load(std::memory_order_relaxed);
    if (of_byte == 0) continue;
    const float ns = of_byte * static_cast<float>(bytes) + (size == own ? 0 : kLatencyNs);
    if (usual == 0 || ns < usual) usual = ns;
  }
  return usual;
}

bool HolderSpeeds::crowded(uint64_t bytes, std::chrono::nanoseconds took) const {
  if (bytes == 0 || took < kCrowdedFor) return false;
  const float usual = usual_ns(bytes);
  return usual != 0 && static_cast<float>(took.count()) > kCrowded * usual;
}

uint64_t HolderSpeeds::place(const Digest& digest) const {
  return mixed(digest.hi ^ mixed(digest.lo ^ salt_));
}

float HolderSpeeds::slowness(HolderIndex holder, TimePoint now) const {
  if (holder >= speeds_.size()) return 1;
  const Speed& speed = speeds_[holder];
  const TimePoint noted_at = speed.noted_at.load(std::memory_order_relaxed);
  return now - noted_at > kForget ? 1 : speed.slowness.load(std::memory_order_relaxed);
}

bool HolderSpeeds::quick(HolderIndex holder, TimePoint now) const {
  if (holder >= speeds_.size()) return false;
  const Speed& speed = speeds_[holder];
  const TimePoint noted_at = speed.noted_at.load(std::memory_order_relaxed);
  return now - noted_at < kMoment && speed.slowness.load(std::memory_order_relaxed) < kQuick;
}

double HolderSpeeds::cost(const Digest& digest, HolderIndex holder, TimePoint now,
                          double pages) const {
  const double u = fraction(mixed(digest.hi ^ mixed(digest.lo ^ mixed(salt_ + holder))));
  return (pages - std::log(u)) * static_cast<double>(slowness(holder, now));
}

}  // namespace peercached
