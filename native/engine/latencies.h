// How long requests take, whole: what a worker waits for, without its own side of the socket.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/histogram.h"

namespace peercached {

// Where the pages of a get were, if they were at several places the farthest of them.
enum class Source : uint8_t { nowhere, pool, disk, peer, peer_disk };
inline constexpr std::array<const char*, 5> kSourceNames = {"nowhere", "pool", "disk", "peer",
                                                            "peer_disk"};

struct Latencies {
  RequestLatency set, exists;
  RequestLatency promote;  // of batches that somebody waits for, at the node with the disk
  std::array<RequestLatency, kSourceNames.size()> get;  // by Source
};

// Adds how long its own life was.
class Timed {
 public:
  explicit Timed(RequestLatency& histogram) : histogram_(histogram) {}
  ~Timed() { histogram_.add_since(started_); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  RequestLatency& histogram_;
  const TimePoint started_ = Clock::now();
};

// For whoever shows them. `kind`: "set", "exists", "promote", "get" (label: the source),
// "peer_read" (label: the holder index) or "rail_read" (label: the number of the rail).
struct NamedLatency {
  std::string kind, label;
  LatencySnapshot counts;
};

}  // namespace peercached
