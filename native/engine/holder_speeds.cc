#include "engine/holder_speeds.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/nodes.h"

namespace peercached {
namespace {

constexpr float kOfUsual = 1.0f / 16;  // what one READ adds to the mean of its size
constexpr float kOfHolder = 1.0f / 4;  // and to the mean of its holder

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
  std::atomic<float>& usual = usual_ns_[static_cast<size_t>(std::bit_width(bytes)) - 1];
  const float before = usual.load(std::memory_order_relaxed);
  const float mean = before == 0 ? ns : before + kOfUsual * (ns - before);
  usual.store(mean, std::memory_order_relaxed);

  const float sample = std::clamp(ns / mean, 1 / kSlownessMax, kSlownessMax);
  const float slowness = this->slowness(holder, now);
  Speed& speed = speeds_[holder];
  speed.slowness.store(slowness + kOfHolder * (sample - slowness), std::memory_order_relaxed);
  speed.noted_at.store(now.time_since_epoch().count(), std::memory_order_relaxed);
}

float HolderSpeeds::usual_ns(uint64_t bytes) const {
  const auto size = static_cast<size_t>(std::bit_width(bytes)) - 1;
  return usual_ns_[size].load(std::memory_order_relaxed);
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
  const TimePoint noted_at{TimePoint::duration(speed.noted_at.load(std::memory_order_relaxed))};
  return now - noted_at > kForget ? 1 : speed.slowness.load(std::memory_order_relaxed);
}

bool HolderSpeeds::quick(HolderIndex holder, TimePoint now) const {
  if (holder >= speeds_.size()) return false;
  const Speed& speed = speeds_[holder];
  const TimePoint noted_at{TimePoint::duration(speed.noted_at.load(std::memory_order_relaxed))};
  return now - noted_at < kMoment && speed.slowness.load(std::memory_order_relaxed) < kQuick;
}

double HolderSpeeds::cost(const Digest& digest, HolderIndex holder, TimePoint now,
                          double pages) const {
  const double u = fraction(mixed(digest.hi ^ mixed(digest.lo ^ mixed(salt_ + holder))));
  return (pages - std::log(u)) * static_cast<double>(slowness(holder, now));
}

}  // namespace peercached
