#include "directory/ring.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

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
                                " positions: too many");
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

uint64_t Ring::print(const std::function<uint64_t(HolderIndex)>& identity) const {
  std::vector<uint64_t> identities;
  for (HolderIndex node : nodes_) identities.push_back(identity(node));
  const auto hash = [](const std::vector<uint64_t>& words, uint64_t seed) {
    return XXH3_64bits_withSeed(words.data(), words.size() * sizeof(uint64_t), seed);
  };
  // 0 is no ring.
  return std::max<uint64_t>(hash(identities, hash(positions_, replicas_)), 1);
}

}  // namespace peercached
