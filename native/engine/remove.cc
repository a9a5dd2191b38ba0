#include "engine/remove.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/digests.h"
#include "engine/namespaces.h"

namespace peercached {

namespace {

constexpr int kRemoveAttempts = 4;

// Appends the whole items of an answer. An empty answer has no memory to copy from.
template <typename Item>
void append_items(std::vector<Item>& items, std::span<const std::byte> packed) {
  const size_t count = packed.size() / sizeof(Item);
  if (count == 0) return;
  items.resize(items.size() + count);
  std::memcpy(items.data() + items.size() - count, packed.data(), count * sizeof(Item));
}

// False: the namespace was cleared meanwhile, so these digests are the wrong ones.
bool remove_in_epoch(ControlQueue& control, const RequestContext& context, std::span<PageRef> keys,
                     std::string& text) {
  const NamespaceEpoch ns = context.ns->current();
  const std::vector<Digest> digests = digests_of(ns.key, keys);
  const RemovalQuestion question{context.ns->id(), ns.epoch};
  const auto head_bytes = std::as_bytes(std::span(&question, 1));
  std::vector<std::byte> asked(head_bytes.begin(), head_bytes.end());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].status != PageStatus::pending) continue;
    const auto bytes = std::as_bytes(std::span(&digests[i], 1));
    asked.insert(asked.end(), bytes.begin(), bytes.end());
  }
  if (asked.size() == head_bytes.size()) return true;  // no valid key
  const auto answer = control.ask(EventKind::remove, asked, context.deadline);
  RemovalAnswer head;
  std::vector<Digest> held;
  text = "this daemon's control plane did not answer in time";
  if (answer && answer->size() >= sizeof head) {
    std::memcpy(&head, answer->data(), sizeof head);
    const std::span<const std::byte> rest = std::span(*answer).subspan(sizeof head);
    const size_t bytes = std::min<size_t>(rest.size(), head.held * sizeof(Digest));
    append_items(held, rest.first(bytes));
    text.assign(reinterpret_cast<const char*>(rest.data() + bytes), rest.size() - bytes);
  }
  const auto outcome = static_cast<PageStatus>(head.status);
  if (outcome == PageStatus::stale) return false;
  std::sort(held.begin(), held.end());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].status != PageStatus::pending) continue;
    const bool was_here = std::binary_search(held.begin(), held.end(), digests[i]);
    keys[i].status = outcome != PageStatus::ok ? outcome
                     : was_here                ? PageStatus::ok
                                               : PageStatus::absent;
  }
  return true;
}

}  // namespace

std::string remove_everywhere(ControlQueue& control, const RequestContext& context,
                              std::span<PageRef> keys) {
  std::string text;
  for (int attempt = 1; attempt <= kRemoveAttempts; ++attempt) {
    if (remove_in_epoch(control, context, keys, text)) return text;
  }
  for (PageRef& key : keys) {
    if (key.status == PageStatus::pending) key.status = PageStatus::error;
  }
  return "the namespace is cleared again and again: remove once more";
}

std::string clear_everywhere(ControlQueue& control, const RequestContext& context) {
  const std::string& name = context.ns->name();
  std::vector<std::byte> question(sizeof context.user + name.size());
  std::memcpy(question.data(), &context.user, sizeof context.user);
  std::memcpy(question.data() + sizeof context.user, name.data(), name.size());
  auto answer = control.ask(EventKind::clear, question, context.deadline);
  if (!answer) return "the control plane did not answer in time; call clear again";
  return {reinterpret_cast<const char*>(answer->data()), answer->size()};
}

}  // namespace peercached
