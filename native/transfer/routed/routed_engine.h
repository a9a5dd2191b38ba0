// Each peer by the way that reaches it: RDMA where both sides have it, else TCP.
#pragma once

#include <memory>

#include "transfer/rdma/rdma_engine.h"

namespace peercached {

// What to do with a peer that has RDMA while none of our rails reaches it.
enum class WithoutRails : uint8_t {
  fail,     // protocol = "rdma": its pages are misses
  use_tcp,  // protocol = "auto"
};

struct RoutedCounters {
  std::atomic<uint64_t> fallback_reads{0};  // over TCP, of peers that have RDMA
  std::atomic<uint64_t> fallback_peers{0};  // that have RDMA, and were read last over TCP
};

// `rdma` outlives it.
std::unique_ptr<TransferEngine> make_routed_engine(std::unique_ptr<TransferEngine> tcp,
                                                   rdma::RdmaEngine& rdma, WithoutRails without,
                                                   RoutedCounters& counters);

}  // namespace peercached
