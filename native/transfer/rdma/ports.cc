#include "transfer/rdma/ports.h"

#include <arpa/inet.h>
#include <net/if.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <cstring>
#include <fstream>
#include <optional>
#include <stdexcept>

#include "transfer/rdma/verbs.h"

namespace peercached::rdma {
namespace {

constexpr size_t kGidsMax = 1024;
constexpr uint32_t kGidIndexMax = 255;  // an address handle has one byte for it

// By the bits of ibv_port_attr: each stands for one speed of a lane, or one number of lanes. The
// last entries are for no bit at all.
double gbps_of(uint8_t speed, uint8_t width) {
  constexpr double kLaneGbps[] = {2.5, 5, 10, 10, 14, 25, 50, 100, 0};
  constexpr double kLanes[] = {1, 4, 8, 12, 2, 1, 1, 1, 1};
  return kLaneGbps[std::countr_zero(speed)] * kLanes[std::countr_zero(width)];
}

int numa_node_of(const std::string& device) {
  std::ifstream file("/sys/class/infiniband/" + device + "/device/numa_node");
  int node = -1;
  return file >> node ? node : -1;
}

ibv_port_attr query_port(const Verbs& verbs, ibv_context* context, uint8_t number) {
  ibv_port_attr attr{};
  // Copies the inline function of verbs.h: the exported symbol lacks the newest fields.
  verbs_context* extended = verbs_get_ctx_op(context, query_port);
  const int error =
      extended != nullptr
          ? extended->query_port(context, number, &attr, sizeof attr)
          : verbs.query_port(context, number, reinterpret_cast<_compat_ibv_port_attr*>(&attr));
  if (error != 0) throw VerbsError("querying a port", error);
  return attr;
}

void list_gids(const Verbs& verbs, ibv_context* context, std::vector<Port>& ports) {
  std::vector<ibv_gid_entry> entries(kGidsMax);
  const ssize_t count =
      verbs.query_gid_table(context, entries.data(), entries.size(), 0, sizeof(ibv_gid_entry));
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = entries[static_cast<size_t>(i)];
    for (Port& port : ports) {
      if (static_cast<uint32_t>(port.number) != entry.port_num) continue;
      if (entry.gid_index > kGidIndexMax) continue;
      GidEntry& gid = port.gids.emplace_back();
      std::memcpy(gid.gid.data(), entry.gid.raw, sizeof gid.gid);
      gid.index = static_cast<int>(entry.gid_index);
      gid.roce_v2 = entry.gid_type == IBV_GID_TYPE_ROCE_V2;
      char name[IF_NAMESIZE] = "";
      if (entry.ndev_ifindex != 0 && ::if_indextoname(entry.ndev_ifindex, name) != nullptr) {
        gid.netdev = name;
      }
    }
  }
}

Port without_gids(const Verbs& verbs, ibv_context* context, const std::string& device,
                  uint8_t number) {
  const ibv_port_attr at = query_port(verbs, context, number);
  Port port;
  port.device = device;
  port.number = number;
  port.active = at.state == IBV_PORT_ACTIVE;
  port.ethernet = at.link_layer == IBV_LINK_LAYER_ETHERNET;
  port.lid = at.lid;
  port.mtu_bytes = 128 << at.active_mtu;
  port.rate_gbps = gbps_of(at.active_speed, at.active_width);
  port.numa_node = numa_node_of(device);
  return port;
}

bool ipv4_mapped(const Gid& gid) {
  static constexpr uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.data(), kPrefix, sizeof kPrefix) == 0;
}

bool link_local(const Gid& gid) {
  if (ipv4_mapped(gid)) return gid[12] == 169 && gid[13] == 254;
  return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

// Lower is better; nullopt: not usable.
std::optional<int> rank(const Port& port, const GidEntry& gid, const std::string& host) {
  if (!port.ethernet) return gid.index;  // InfiniBand: the first entry is the port's own
  if (!gid.roce_v2) return std::nullopt;
  if (text_of(gid.gid) == host) return 0;
  return (ipv4_mapped(gid.gid) ? 1 : 2) + (link_local(gid.gid) ? 2 : 0);
}

std::string name_of(const Port& port) { return port.device + ":" + std::to_string(port.number); }

std::string names_of(std::span<const Port> ports) {
  std::string names;
  for (const Port& port : ports) names += (names.empty() ? "" : ", ") + name_of(port);
  return names.empty() ? "none" : names;
}

std::vector<Port> chosen_by_name(std::span<const Port> ports, const RailPolicy& policy) {
  std::vector<Port> rails;
  for (const std::string& wanted : policy.device_names) {
    const auto found = std::find_if(ports.begin(), ports.end(), [&](const Port& port) {
      return name_of(port) == wanted || (port.device == wanted && port.number == 1);
    });
    if (found == ports.end()) {
      throw std::runtime_error("device_names: there is no RDMA port " + wanted +
                               " here; there are: " + names_of(ports));
    }
    rails.push_back(*found);
  }
  return rails;
}

std::vector<Port> chosen_freely(std::span<const Port> ports, const RailPolicy& policy) {
  std::vector<Port> rails;
  std::string why;
  double fastest = 0;
  for (const Port& port : ports) {
    const std::string why_not = why_unusable(port, policy);
    if (why_not.empty()) {
      rails.push_back(port);
      fastest = std::max(fastest, port.rate_gbps);
    } else {
      why += (why.empty() ? "" : "; ") + name_of(port) + ": " + why_not;
    }
  }
  if (rails.empty()) throw std::runtime_error("no RDMA port can be used: " + why);
  std::erase_if(rails, [&](const Port& port) { return port.rate_gbps < fastest; });
  std::stable_sort(rails.begin(), rails.end(), [&](const Port& a, const Port& b) {
    return (a.numa_node == policy.numa_node) > (b.numa_node == policy.numa_node);
  });
  return rails;
}

}  // namespace

std::optional<GidEntry> choose_gid(const Port& port, const RailPolicy& policy,
                                   const GidEntry* current) {
  std::optional<GidEntry> best;
  int best_rank = INT_MAX;
  for (const GidEntry& gid : port.gids) {
    if (policy.gid_index >= 0) {
      if (gid.index == policy.gid_index) return gid;
      continue;
    }
    const auto here = rank(port, gid, policy.host);
    const bool stays = current != nullptr && gid.gid == current->gid;
    if (!here || *here > best_rank || (*here == best_rank && !stays)) continue;
    best = gid;
    best_rank = *here;
  }
  return best;
}

std::string why_unusable(const Port& port, const RailPolicy& policy) {
  if (!port.active) return "it is not active: check cable and switch, or bring its link up";
  if (choose_gid(port, policy)) return "";
  if (policy.gid_index >= 0) {
    return "it has no GID with index " + std::to_string(policy.gid_index) +
           ": correct rdma_gid_index, or leave it out";
  }
  return "it has no RoCE v2 GID: give its network interface an address";
}

std::vector<Port> list_ports() {
  std::string why;
  const Verbs* verbs = Verbs::find(why);
  if (verbs == nullptr) throw std::runtime_error(why);
  int count = 0;
  const DeviceList devices(verbs->get_device_list(&count));
  std::vector<Port> all;
  if (!devices) return all;  // the kernel has no RDMA
  for (ibv_device* device : std::span(devices.get(), static_cast<size_t>(count))) {
    const std::string name = verbs->get_device_name(device);
    const Context context(verbs->open_device(device));
    ibv_device_attr attr{};
    if (!context || verbs->query_device(context.get(), &attr) != 0) continue;
    std::vector<Port> ports;
    for (uint8_t number = 1; number <= attr.phys_port_cnt; ++number) {
      ports.push_back(without_gids(*verbs, context.get(), name, number));
    }
    list_gids(*verbs, context.get(), ports);
    std::move(ports.begin(), ports.end(), std::back_inserter(all));
  }
  std::sort(all.begin(), all.end(), [](const Port& a, const Port& b) {
    return std::pair(a.device, a.number) < std::pair(b.device, b.number);
  });
  return all;
}

Port look_at(ibv_context* context, const std::string& device, int number) {
  const Verbs& verbs = Verbs::get();
  std::vector<Port> ports{without_gids(verbs, context, device, static_cast<uint8_t>(number))};
  list_gids(verbs, context, ports);
  return ports[0];
}

std::vector<Port> choose_rails(std::span<const Port> ports, const RailPolicy& policy) {
  if (ports.empty()) throw std::runtime_error("this machine has no RDMA device");
  return policy.device_names.empty() ? chosen_freely(ports, policy) : chosen_by_name(ports, policy);
}

std::string text_of(const Gid& gid) {
  char text[INET6_ADDRSTRLEN] = "";
  if (ipv4_mapped(gid)) {
    ::inet_ntop(AF_INET, gid.data() + 12, text, sizeof text);
  } else {
    ::inet_ntop(AF_INET6, gid.data(), text, sizeof text);
  }
  return text;
}

}  // namespace peercached::rdma
