// Node incarnations by holder index, and whether each can be used now.
//
// An index is in use while its incarnation is in the view. Entries of the location cache may
// outlive it, without harm: their READ names digest and generation, and finds neither.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/types.h"
#include "engine/measures/same_keys.h"

namespace peercached {

// The time for an owner to answer. An owner that takes longer is slow: others are asked, too. It is
// asked again after kSlowFor.
inline constexpr auto kFramePatience = std::chrono::milliseconds(100);
inline constexpr auto kSlowFor = std::chrono::seconds(1);

class NodeTable {
 public:
  NodeTable(std::string self_id, Incarnation self_incarnation);
  // `on_readable`: a node could not be read from, and can now. Call once, before there are others.
  void tell_of_readable(std::function<void()> on_readable) {
    on_readable_ = std::move(on_readable);
  }

  // The index of this incarnation, new or known. Throws std::length_error when the table is full.
  HolderIndex add(const std::string& node_id, Incarnation incarnation);
  void drop(HolderIndex index);
  void set_connected(HolderIndex index, bool connected) { set(index, kConnected, connected); }
  void set_suspect(HolderIndex index, bool suspect) { set(index, kSuspect, suspect); }

  // The node may have missed removals (docs/consistency.md): none of its pages is used here.
  void set_owes(HolderIndex index, bool owes) { set(index, kOwes, owes); }
  // The node did not answer in time: do not ask it on the hot path until then.
  void set_slow(HolderIndex index, TimePoint until);
  // The indices of these incarnations; kNoHolder: not in the view.
  std::vector<HolderIndex> find(std::span<const Incarnation> incarnations) const;

  // Lock-free: the hot path calls these for every page.
  bool live(HolderIndex index) const { return (state(index) & kLive) != 0; }
  bool slow(HolderIndex index, TimePoint now) const {
    return index < kNodesMax && now < slow_until_[index].load(std::memory_order_relaxed);
  }
  bool usable(HolderIndex index) const {
    return (state(index) & (kLive | kSuspect | kOwes)) == kLive;
  }
  bool readable(HolderIndex index) const { return state(index) == (kLive | kConnected); }
  bool suspect(HolderIndex index) const { return (state(index) & kSuspect) != 0; }
  // Compares pages that workers here set with those of this node.
  SameKeys& same_keys(HolderIndex index) const { return same_keys_[index % kNodesMax]; }
  Incarnation incarnation(HolderIndex index) const {
    return index < kNodesMax ? incarnations_[index].load(std::memory_order_acquire) : 0;
  }

  struct Node {
    HolderIndex index;
    std::string node_id;
    Incarnation incarnation;
    bool connected, suspect;
  };
  std::vector<Node> all() const;
  bool any_suspect() const;

 private:
  static constexpr uint8_t kLive = 1, kConnected = 2, kSuspect = 4, kOwes = 8;

  uint8_t state(HolderIndex index) const {
    return index < kNodesMax ? state_[index].load(std::memory_order_acquire) : uint8_t{0};
  }
  void set(HolderIndex index, uint8_t flag, bool on);

  std::function<void()> on_readable_;
  mutable std::mutex mutex_;
  std::vector<std::string> ids_;  // by index; empty: free
  std::array<std::atomic<uint8_t>, kNodesMax> state_{};
  std::array<std::atomic<Incarnation>, kNodesMax> incarnations_{};
  std::array<std::atomic<TimePoint>, kNodesMax> slow_until_{};
  mutable std::array<SameKeys, kNodesMax> same_keys_;
};

}  // namespace peercached
