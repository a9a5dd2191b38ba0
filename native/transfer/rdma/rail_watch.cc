#include "transfer/rdma/rail_watch.h"

#include <chrono>

namespace peercached::rdma {
namespace {

constexpr std::chrono::seconds kTellEvery{1};

// Names the peers in `all` that are not in `others`.
std::string missing(const std::map<std::string, std::string>& all,
                    const std::map<std::string, std::string>& others) {
  std::string names;
  for (const auto& [peer, why] : all) {
    if (!others.contains(peer)) names += (names.empty() ? "" : ", ") + peer;
  }
  return names;
}

}  // namespace

bool RailWatch::due(TimePoint now) {
  if (now - told_at_ < kTellEvery) return false;
  told_at_ = now;
  return true;
}

void RailWatch::notify(std::vector<RailNow> rails, Notices& notices) {
  const bool first = before_.empty();
  for (size_t i = 0; i < rails.size(); ++i) {
    const RailNow& now = rails[i];
    const RailNow before = first ? RailNow{now.name, "", now.address, {}} : before_[i];
    const std::string rail = "rail " + std::to_string(i) + " (" + now.name + ")";
    if (before.why_down.empty() != now.why_down.empty()) {
      const std::string down = rail + " is down: " + now.why_down;
      notices.say("rail", now.why_down.empty() ? rail + " is up again" : down);
    }
    if (before.address != now.address) {
      notices.say("rail address", "address of " + rail + " changed: now GID " +
                                      std::to_string(now.address.gid.index) + " (" +
                                      text_of(now.address.gid.gid) + "), MTU " +
                                      std::to_string(128 << now.address.mtu));
    }
    if (const std::string lost = missing(now.doubted, before.doubted); !lost.empty()) {
      const std::string& why = now.doubted.at(lost.substr(0, lost.find(", ")));
      notices.say("path", rail + " does not reach " + lost + ": " + why);
    }
    if (const std::string back = missing(before.doubted, now.doubted); !back.empty()) {
      notices.say("path again", rail + " reaches " + back + " again");
    }
  }
  before_ = std::move(rails);
}

}  // namespace peercached::rdma
