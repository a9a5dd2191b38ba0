#include "shard/ring.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>

namespace peercached {

Ring::Ring(std::vector<uint64_t> positions, std::vector<HolderIndex> nodes, unsigned replicas,
           uint64_t view_number)
    : positions_(std::move(positions)),
      nodes_(std::move(nodes)),
      replicas_(replicas),
      view_number_(view_number) {
  if (replicas_ < 1 || replicas_ > kOwnersMax)
    throw std::invalid_argument("ring: replicas is " + std::to_string(replicas_) + ": give 1 to " +
                                std::to_string(kOwnersMax));
  if (positions_.size() != nodes_.size())
    throw std::invalid_argument("ring: " + std::to_string(positions_.size()) + " positions but " +
                                std::to_string(nodes_.size()) + " nodes: give one node for each");
  if (!std::is_sorted(positions_.begin(), positions_.end()))
    throw std::invalid_argument("ring: the positions do not ascend: sort them");
  if (positions_.size() >= UINT32_MAX)
    throw std::invalid_argument("ring: " + std::to_string(positions_.size()) +
                                " positions: use fewer vnodes");
  if (positions_.empty()) return;
  const size_t count = positions_.size();
  node_last_ = *std::max_element(nodes_.begin(), nodes_.end());

  // Walk anticlockwise. The owners at a position are its node, followed by the owners at the next
  // position without that node. The first round only finds the owners past the wrap-around.
  std::array<HolderIndex, kOwnersMax> current{};
  unsigned known = 0;
  for (int round = 0; round < 2; ++round) {
    if (round == 1) {
      owners_per_place_ = known;
      owners_.resize(count * known);
    }
    for (size_t i = count; i-- > 0;) {
      auto end = current.begin() + known;
      auto same = std::find(current.begin(), end, nodes_[i]);
      if (same == end) {
        if (known < replicas_) ++known;
        same = current.begin() + known - 1;
      }
      std::move_backward(current.begin(), same, same + 1);
      current[0] = nodes_[i];
      if (round == 1)
        std::copy_n(current.begin(), owners_per_place_, owners_.begin() + i * owners_per_place_);
    }
  }

  const auto jump_bits = static_cast<unsigned>(std::bit_width(count));
  jump_shift_ = 64 - jump_bits;
  jump_.resize((size_t{1} << jump_bits) + 1);
  size_t next = 0;
  for (size_t i = 0; i + 1 < jump_.size(); ++i) {
    while (next < count && positions_[next] < uint64_t{i} << jump_shift_) ++next;
    jump_[i] = static_cast<uint32_t>(next);
  }
  jump_.back() = static_cast<uint32_t>(count);
}

const HolderIndex* Ring::owners_at(uint64_t place) const {
  const size_t top = place >> jump_shift_;
  auto first = positions_.begin() + jump_[top];
  auto last = positions_.begin() + jump_[top + 1];
  size_t at = std::lower_bound(first, last, place) - positions_.begin();
  if (at == positions_.size()) at = 0;
  return owners_.data() + at * owners_per_place_;
}

unsigned Ring::owners(const Digest& digest, HolderIndex out[kOwnersMax]) const {
  if (positions_.empty()) return 0;
  std::copy_n(owners_at(digest.lo), owners_per_place_, out);
  return owners_per_place_;
}

bool Ring::owned_by(const Digest& digest, HolderIndex node) const {
  if (positions_.empty()) return false;
  const HolderIndex* first = owners_at(digest.lo);
  return std::find(first, first + owners_per_place_, node) != first + owners_per_place_;
}

std::vector<Ring::Part> Ring::split(std::span<const std::byte> items, size_t stride,
                                    bool first_only) const {
  if (stride < sizeof(Digest) || items.size() % stride != 0)
    throw std::invalid_argument("ring: " + std::to_string(items.size()) +
                                " bytes are no whole number of items of " + std::to_string(stride) +
                                " bytes");
  std::vector<Part> parts;
  if (positions_.empty() || items.empty()) return parts;
  const size_t count = items.size() / stride;
  const unsigned copies = first_only ? 1 : owners_per_place_;

  // First count the items per owner, then make one exact allocation per part.
  constexpr uint16_t kNoPart = UINT16_MAX;
  std::vector<uint16_t> part_of(size_t{node_last_} + 1, kNoPart);
  std::vector<uint16_t> targets(count * copies);
  std::vector<size_t> sizes;
  for (size_t i = 0; i < count; ++i) {
    Digest digest;
    std::memcpy(&digest, items.data() + i * stride, sizeof digest);
    const HolderIndex* owner = owners_at(digest.lo);
    for (unsigned c = 0; c < copies; ++c) {
      uint16_t& part = part_of[owner[c]];
      if (part == kNoPart) {
        part = static_cast<uint16_t>(parts.size());
        parts.push_back({owner[c], {}});
        sizes.push_back(0);
      }
      targets[i * copies + c] = part;
      ++sizes[part];
    }
  }
  std::vector<std::byte*> ends(parts.size());
  for (size_t p = 0; p < parts.size(); ++p) {
    parts[p].items.resize(sizes[p] * stride);
    ends[p] = parts[p].items.data();
  }
  for (size_t i = 0; i < count; ++i) {
    for (unsigned c = 0; c < copies; ++c) {
      std::byte*& end = ends[targets[i * copies + c]];
      std::memcpy(end, items.data() + i * stride, stride);
      end += stride;
    }
  }
  return parts;
}

std::vector<std::pair<HolderIndex, double>> Ring::shares(unsigned owners) const {
  const unsigned counted = std::min(owners, owners_per_place_);
  if (positions_.empty()) return {};
  constexpr double kWhole = 18446744073709551616.0;  // 2^64
  std::map<HolderIndex, double> arcs;
  uint64_t before = positions_.back();
  for (size_t i = 0; i < positions_.size(); ++i) {
    uint64_t arc = positions_[i] - before;
    // If all positions are equal, the first one gets the whole circle.
    const double length = i == 0 && arc == 0 ? kWhole : static_cast<double>(arc);
    for (unsigned o = 0; o < counted; ++o) arcs[owners_[i * owners_per_place_ + o]] += length;
    before = positions_[i];
  }
  std::vector<std::pair<HolderIndex, double>> shares;
  for (auto [node, arc] : arcs) shares.emplace_back(node, arc / kWhole);
  return shares;
}

}  // namespace peercached
