// Chooses the transport for each peer: a preferred one where both sides have it, else the other.
//
// With three transports, one routed engine is the other of the next.
#pragma once

#include <atomic>
#include <memory>

#include "transfer/transfer.h"

namespace peercached {

// The policy for a peer that offers the preferred transport while that does not reach it.
enum class Unreached : uint8_t {
  fail,       // protocol = "rdma": its pages are misses
  use_other,  // protocol = "auto"
};

struct RoutedCounters {
  std::atomic<uint64_t> fallback_reads{0};  // over the other, from peers that offer the preferred
  std::atomic<uint64_t> fallback_peers{0};  // that offer it but were last read over the other
};

// `preferred` must outlive the engine.
std::unique_ptr<TransferEngine> make_routed_engine(Transport& preferred,
                                                   std::unique_ptr<TransferEngine> other,
                                                   Unreached unreached, RoutedCounters& counters);

}  // namespace peercached
