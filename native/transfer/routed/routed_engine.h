// Chooses the engine for each peer: RDMA where both sides have it, else TCP.
#pragma once

#include <memory>

#include "transfer/rdma/rdma_engine.h"

namespace peercached {

// The policy for a peer that has RDMA while none of our rails reaches it.
enum class WithoutRails : uint8_t {
  fail,     // protocol = "rdma": its pages are misses
  use_tcp,  // protocol = "auto"
};

struct RoutedCounters {
  std::atomic<uint64_t> fallback_reads{0};  // reads over TCP from peers that have RDMA
  std::atomic<uint64_t> fallback_peers{0};  // peers that have RDMA but were last read over TCP
};

// `rdma` must outlive the engine.
std::unique_ptr<TransferEngine> make_routed_engine(std::unique_ptr<TransferEngine> tcp,
                                                   rdma::RdmaEngine& rdma, WithoutRails without,
                                                   RoutedCounters& counters);

}  // namespace peercached
