// The RDMA ports of this machine, and the choice of rails among them.
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

// Lists all ports of all devices that can be opened; empty without devices. Throws
// std::runtime_error if libibverbs is missing.
std::vector<Port> list_ports();

struct RailPolicy {
  std::vector<std::string> device_names;  // "mlx5_0" or "mlx5_0:2"; empty: choose by speed
  int gid_index = -1;                     // -1: choose by type and address
  std::string host;                       // the node's own address: its GID is preferred
  int numa_node = -1;                     // of the pool: nearer rails are preferred
};

// Returns the rails in order of use. Without names, these are the usable ports with the highest
// rate. Named ports need not be usable yet: a network may come up after the daemon. Throws
// std::runtime_error if no port is usable, with every port's reason, or if there is none of a given
// name.
std::vector<Port> choose_rails(std::span<const Port> ports, const RailPolicy& policy);

// Queries a port of an opened device. Throws VerbsError.
Port look_at(ibv_context* context, const std::string& device, int number);
// Chooses the GID of a rail on this port; nullopt: none is usable. `current` stays if it still
// exists and no other is better.
std::optional<GidEntry> choose_gid(const Port& port, const RailPolicy& policy,
                                   const GidEntry* current = nullptr);
// Why the port cannot be used now, and the remedy; empty: it can.
std::string why_unusable(const Port& port, const RailPolicy& policy);

std::string text_of(const Gid& gid);  // "10.0.0.1" for IPv4, else IPv6 notation

}  // namespace peercached::rdma
