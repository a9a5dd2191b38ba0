// The events that native threads send to the control plane: their kinds, and the layouts of their
// payloads and answers. A layout is structs, rows and texts, one behind the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ranges>
#include <span>
#include <vector>

#include "common/types.h"

namespace peercached {

// Python never sees these numbers, nor the layouts of the payloads: native/bindings/
// events_binding.cc turns each event into a tuple of its name and its fields.
enum class EventKind : uint8_t {
  remove = 3,  // cluster-wide removal; payload: RemovalQuestion; answer: RemovalAnswer
  // payload: u32 user of the worker, the namespace's name; answer: text, names unreachable nodes
  clear = 4,
  peer_trouble = 5,  // payload: PeerTrouble
  // payload: ChannelQuestion; answered by Transports::channel_connected or channel_refused
  connect_channel = 7,
  // payload: PromoteQuestion. With a ticket a reader waits. The answer is RecordRow[]: records of
  // pages now in the holder's pool, and withdrawals of pages that it does not have. A row without
  // flags: its disk failed. Without a ticket the holder warms the pages.
  promote = 8,
  // payload: PinQuestion; answer: a PageStatus byte for each digest, then a text for the worker's
  // log
  pin = 9,
  // payload: HintQuestion; answer: a byte, 0 if the envelope was understood, then a text
  hint = 13,
  follower_moved = 10,  // a follower that was behind (RecordFeed::behind) has asked again
  // payload: the digests of pages in the object store. With a ticket a reader waits until they are
  // in our pool. Without one they are warmed. Without digests, it waits until the control plane
  // vouches for the index of the store. The answer is empty.
  fetch = 11,
};

// Followed by a human-readable text.
struct PeerTrouble {
  Incarnation incarnation = 0;
  HolderIndex holder = kNoHolder;
  bool token_unknown = false;
  uint8_t reserved[5] = {};
};
static_assert(sizeof(PeerTrouble) == 16);

// Followed by the digests to remove, made in this epoch of the namespace.
struct RemovalQuestion {
  Digest namespace_id;
  uint64_t epoch = 0;
};

// Followed by the digests to pin, made in this epoch of the namespace.
struct PinQuestion {
  Digest namespace_id;
  uint64_t epoch = 0;
  uint32_t for_ms = 0;  // 0: the pins end now
  bool prefix = false;
  bool here = false;
  uint8_t reserved[2] = {};
};
static_assert(sizeof(PinQuestion) == 32);

// Followed by the namespace's name, the digests that actions without keys are about, and the
// envelope.
struct HintQuestion {
  uint32_t namespace_bytes = 0;
  uint32_t digests = 0;
};
static_assert(sizeof(HintQuestion) == 8);

// Followed by `were_here` digests of pages that were there, and a text for the worker's log.
struct RemovalAnswer {
  // ok, error, removing, deadline; stale: the namespace was cleared meanwhile, ask again
  uint32_t status = static_cast<uint32_t>(PageStatus::deadline);
  uint32_t were_here = 0;
};

// Followed by the reader's end of the channel, as its transport packs it, and the u32 numbers of
// its closed channels.
struct ChannelQuestion {
  HolderIndex holder = kNoHolder;
  uint8_t reserved[2] = {};
  uint32_t end_bytes = 0;
  uint64_t connect_id = 0;
};
static_assert(sizeof(ChannelQuestion) == 16);

// Followed by the digests of the pages.
struct PromoteQuestion {
  HolderIndex holder = kNoHolder;
  uint8_t reserved[6] = {};
};
static_assert(sizeof(PromoteQuestion) == 8);

// The bytes of these parts, each a plain struct or a range of such.
template <typename... Parts>
std::vector<std::byte> payload_of(const Parts&... parts) {
  std::vector<std::byte> payload;
  const auto append = [&]<typename Part>(const Part& part) {
    std::span<const std::byte> bytes;
    if constexpr (std::ranges::contiguous_range<Part>)
      bytes = std::as_bytes(std::span(part));
    else
      bytes = std::as_bytes(std::span(&part, 1));
    payload.insert(payload.end(), bytes.begin(), bytes.end());
  };
  (append(parts), ...);
  return payload;
}

// The whole items of an answer. An empty answer has no memory to copy from.
template <typename Item>
std::vector<Item> items_of(std::span<const std::byte> packed) {
  std::vector<Item> items(packed.size() / sizeof(Item));
  if (!items.empty()) std::memcpy(items.data(), packed.data(), items.size() * sizeof(Item));
  return items;
}

}  // namespace peercached
