// A transport with what it needs on this node: devices, registered memory, and channels that the
// control plane connects. TCP needs none of it, so it is only a Transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/histogram.h"
#include "common/json.h"
#include "common/notices.h"
#include "common/types.h"
#include "transfer/transfer.h"

namespace peercached {

// The control plane's part: carries our end of a channel to the peer, and its answer back.
class ChannelRequests {
 public:
  virtual ~ChannelRequests() = default;
  // `end`: our end, packed. `closed`: numbers of channels to the same peer that no longer exist.
  // True: Provider::channel_connected or channel_refused follows exactly once. It comes later, on
  // any thread. False: not possible now, and no answer will follow.
  virtual bool request_channel(HolderIndex peer, uint32_t channel, std::span<const std::byte> end,
                               std::span<const uint32_t> closed) = 0;
};

class Provider;

// All that a provider needs.
struct ProviderNeeds {
  std::byte* pool;
  uint64_t pool_bytes;
  uint64_t ready_bytes;  // of the pool, from its begin on; see pool_grew()
  std::string host;      // of the data port
  Incarnation incarnation;
  unsigned channels_per_peer;
  bool demanded;              // else TCP takes its place where it fails
  ChannelRequests& requests;  // outlives it
};

// A provider that a node may have. `make` throws std::runtime_error that says what is missing, and
// the remedy.
struct ProviderChoice {
  std::string name;  // the value of the setting `protocol` that demands it
  std::function<std::unique_ptr<Provider>(const ProviderNeeds&)> make;
};

class Provider {
 public:
  using NameOf = std::function<std::string(HolderIndex)>;  // node id; empty: it is gone

  virtual ~Provider() = default;
  virtual Transport& transport() = 0;
  virtual std::string offer() const { return {}; }  // its part of a handshake, at most 256 bytes

  // --- our pool. Peers can read its first `bytes` afterwards. Throws std::runtime_error if they
  // cannot be registered.
  virtual void pool_grew(uint64_t bytes) = 0;

  // --- memory to read pages into. Throws std::runtime_error if it cannot be registered.
  // `dma_buf_fd`: -1 for host memory.
  virtual void add_region(std::byte* base, uint64_t bytes, int dma_buf_fd) = 0;
  // Call it when no READ into the region is in flight or will start.
  virtual void remove_region(const std::byte* base) = 0;

  // --- as a reader: the answers to ChannelRequests
  virtual void channel_connected(HolderIndex peer, uint32_t channel,
                                 std::span<const std::byte> answer) = 0;
  virtual void channel_refused(HolderIndex peer, uint32_t channel, const std::string& why) = 0;

  // --- as a holder
  // The answer to a peer that wants a channel. Throws std::runtime_error or std::invalid_argument.
  virtual std::vector<std::byte> accept_channel(const std::string& node_id, Incarnation incarnation,
                                                std::span<const std::byte> end,
                                                std::span<const uint32_t> closed) = 0;
  virtual void drop_reader(const std::string& node_id, Incarnation incarnation) = 0;
  virtual void admit_readers(bool on) = 0;  // off: from now on nobody can read over it

  // --- for the operator
  virtual void write_rails(JsonWriter& json, const NameOf& name_of) const = 0;  // objects
  virtual void notify(Notices& notices, const NameOf& name_of) = 0;  // changes of the rails
  // Latencies of reads by rail.
  virtual std::vector<std::pair<std::string, LatencySnapshot>> rail_reads() const = 0;
};

}  // namespace peercached
