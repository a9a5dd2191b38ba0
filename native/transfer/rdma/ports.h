// The RDMA ports of this machine, and which of them become rails.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

struct ibv_context;

namespace peercached::rdma {

using Gid = std::array<uint8_t, 16>;

struct GidEntry {
  Gid gid{};
  int index = 0;
  bool roce_v2 = false;
  std::string netdev;  // empty on InfiniBand
  friend bool operator==(const GidEntry&, const GidEntry&) = default;
};

struct Port {
  std::string device;
  int number = 1;
  bool active = false;
  bool ethernet = false;  // RoCE; else InfiniBand
  uint16_t lid = 0;
  int mtu_bytes = 0;  // active
  double rate_gbps = 0;
  int numa_node = -1;
  std::vector<GidEntry> gids;
};

// All ports of all devices that can be opened. Throws std::runtime_error when libibverbs is
// not there; an empty list when there are no devices.
std::vector<Port> list_ports();

struct RailPolicy {
  std::vector<std::string> device_names;  // "mlx5_0" or "mlx5_0:2"; empty: choose
  int gid_index = -1;                     // -1: by type and address
  std::string host;                       // the node's own address: its GID goes first
  int numa_node = -1;                     // of the pool: nearer rails go first
};

// Rails in the order of their use. Chosen freely they are the usable ports that are as fast as the
// fastest of them. Named ones need not be usable yet, and while no port of the machine is usable
// all are taken: a network may come up after the daemon. Throws std::runtime_error: no port at all,
// or none of a given name.
std::vector<Port> choose_rails(std::span<const Port> ports, const RailPolicy& policy);

// A port of an opened device, as it is now. Throws VerbsError.
Port look_at(ibv_context* context, const std::string& device, int number);
// The GID that a rail has on this port from now on; nullopt: none can be used. `current`, if it is
// still there, goes before one that is no better.
std::optional<GidEntry> choose_gid(const Port& port, const RailPolicy& policy,
                                   const GidEntry* current = nullptr);
// What keeps it from being used now, and what to do; empty: nothing.
std::string why_unusable(const Port& port, const RailPolicy& policy);

std::string text_of(const Gid& gid);  // "10.0.0.1" for an IPv4 one, else IPv6 notation

}  // namespace peercached::rdma
