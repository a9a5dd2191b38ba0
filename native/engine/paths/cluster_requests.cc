#include "engine/paths/cluster_requests.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/control/events.h"
#include "engine/paths/request_pages.h"
#include "engine/storage/namespaces.h"

namespace peercached {

namespace {

constexpr int kRemoveAttempts = 4;

// False: the namespace was cleared meanwhile, so these digests are the wrong ones.
bool remove_in_epoch(ControlQueue& control, const RequestContext& context, std::span<PageRef> keys,
                     std::string& text) {
  const NamespaceEpoch ns = context.ns->current();
  const std::vector<Digest> digests = digests_of(ns.key, keys);
  const RemovalQuestion question{context.ns->id(), ns.epoch};
  std::vector<Digest> asked;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].status == PageStatus::pending) asked.push_back(digests[i]);
  }
  if (asked.empty()) return true;  // no valid key
  const auto answer = control.ask(EventKind::remove, payload_of(question, asked), context.deadline);
  RemovalAnswer head;
  std::vector<Digest> were_here;
  text = "this daemon's control plane did not answer in time";
  if (answer && answer->size() >= sizeof head) {
    std::memcpy(&head, answer->data(), sizeof head);
    const std::span<const std::byte> rest = std::span(*answer).subspan(sizeof head);
    const size_t bytes = std::min<size_t>(rest.size(), head.were_here * sizeof(Digest));
    were_here = items_of<Digest>(rest.first(bytes));
    text.assign(reinterpret_cast<const char*>(rest.data() + bytes), rest.size() - bytes);
  }
  const auto outcome = static_cast<PageStatus>(head.status);
  if (outcome == PageStatus::stale) return false;
  std::sort(were_here.begin(), were_here.end());
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].status != PageStatus::pending) continue;
    const bool was_here = std::binary_search(were_here.begin(), were_here.end(), digests[i]);
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
  auto answer =
      control.ask(EventKind::clear, payload_of(context.user, context.ns->name()), context.deadline);
  if (!answer) return "the control plane did not answer in time; call clear again";
  return {reinterpret_cast<const char*>(answer->data()), answer->size()};
}

std::string pin_pages(ControlQueue& control, const RequestContext& context,
                      std::span<PageRef> keys) {
  const NamespaceEpoch ns = context.ns->current();
  const std::vector<Digest> digests = digests_of(ns.key, keys);
  const PinQuestion question{context.ns->id(), ns.epoch, context.pin.for_ms, context.pin.prefix,
                             context.pin.here};
  std::vector<Digest> asked;
  std::vector<PageRef*> pending;
  for (size_t i = 0; i < keys.size(); ++i) {
    // A bad key is nowhere, so it ends the prefix.
    if (keys[i].status != PageStatus::pending && context.pin.prefix) break;
    if (keys[i].status != PageStatus::pending) continue;
    asked.push_back(digests[i]);
    pending.push_back(&keys[i]);
  }
  for (PageRef& key : keys)
    if (key.status == PageStatus::pending) key.status = PageStatus::absent;
  if (pending.empty()) return "";
  const auto answer = control.ask(EventKind::pin, payload_of(question, asked), context.deadline);
  if (!answer || answer->size() < pending.size()) {
    for (PageRef* key : pending) key->status = PageStatus::deadline;
    return "this daemon's control plane did not answer in time";
  }
  for (size_t i = 0; i < pending.size(); ++i)
    pending[i]->status = static_cast<PageStatus>((*answer)[i]);
  return {reinterpret_cast<const char*>(answer->data()) + pending.size(),
          answer->size() - pending.size()};
}

HintAnswer hand_on_hints(ControlQueue& control, const RequestContext& context,
                         std::span<PageRef> keys, std::string_view envelope) {
  std::vector<Digest> digests = digests_of(context.ns->current().key, keys);
  size_t valid = 0;
  for (size_t i = 0; i < keys.size(); ++i)
    if (keys[i].status == PageStatus::pending) digests[valid++] = digests[i];
  digests.resize(valid);
  const std::string& name = context.ns->name();
  const HintQuestion question{static_cast<uint32_t>(name.size()), static_cast<uint32_t>(valid)};
  const auto answer =
      control.ask(EventKind::hint, payload_of(question, name, digests, envelope), context.deadline);
  if (!answer || answer->empty())
    return {false, "this daemon's control plane did not answer in time"};
  return {(*answer)[0] == std::byte{0},
          {reinterpret_cast<const char*>(answer->data()) + 1, answer->size() - 1}};
}

}  // namespace peercached
