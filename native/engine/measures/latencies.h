// How long requests take in the engine. Workers wait longer: the way through the socket, and the
// work in their own process, come on top.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/histogram.h"

namespace peercached {

// Where the pages of a get were. If at several places, the farthest one.
enum class Source : uint8_t { nowhere, pool, disk, peer, peer_disk, store };
inline constexpr std::array<const char*, 6> kSourceNames = {"nowhere", "pool",      "disk",
                                                            "peer",    "peer_disk", "store"};

struct Latencies {
  RequestLatency set, exists;
  RequestLatency promote;  // batches that a caller waits for, at the node with the disk
  std::array<RequestLatency, kSourceNames.size()> get;  // by Source
  std::array<RequestLatency, 4> client;                 // by ipc::TookOp; as workers tell them
};

// Adds its own lifetime to the histogram.
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

// For display. `kind`: "set", "exists", "promote", "get" (label: the source), "client"
// (label: the op), "peer_read" (label:
// the holder index) or "rail_read" (label: the number of the rail).
struct NamedLatency {
  std::string kind, label;
  LatencySnapshot counts;
};

}  // namespace peercached
