#include "transfer/tcp/life_signs.h"

#include <utility>

namespace peercached::tcp {
namespace {

// The most members that a view may have. Only members are admitted, so more are never needed.
constexpr size_t kHeardMax = 4096;

}  // namespace

void LifeSigns::say(const LifeSign& sign, TimePoint until) {
  MutexLock lock(mutex_);
  own_ = sign;
  own_until_ = until;
}

LifeSign LifeSigns::own(TimePoint now) const {
  MutexLock lock(mutex_);
  return now < own_until_ ? own_ : LifeSign{};
}

void LifeSigns::hear(Incarnation who, const LifeSign& sign, TimePoint now, bool answered) {
  if (sign.view_number == 0) return;
  MutexLock lock(mutex_);
  if (heard_.size() >= kHeardMax && !heard_.contains(who)) return;
  Heard& heard = heard_[who];
  heard.who = who;
  heard.sign = sign;
  heard.at = now;
  if (answered) heard.answered = now;
}

std::vector<LifeSigns::Heard> LifeSigns::take() {
  std::unordered_map<Incarnation, Heard> taken;
  {
    MutexLock lock(mutex_);
    taken.swap(heard_);
  }
  std::vector<Heard> all;
  all.reserve(taken.size());
  for (auto& [who, heard] : taken) all.push_back(heard);
  return all;
}

}  // namespace peercached::tcp
