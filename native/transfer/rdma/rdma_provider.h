// RDMA as a provider of the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "transfer/provider.h"
#include "transfer/rdma/fabric.h"

namespace peercached::rdma {

// Opens the devices and registers the pool on them. With `must_be_up`, a rail must be up. Throws
// std::runtime_error that says what is missing, and the remedy. `requests` must outlive it.
std::unique_ptr<Provider> make_rdma_provider(const FabricConfig& config, bool must_be_up,
                                             std::byte* pool, uint64_t pool_bytes,
                                             ChannelRequests& requests);

}  // namespace peercached::rdma
