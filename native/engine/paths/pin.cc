#include "engine/paths/pin.h"

#include <vector>

#include "engine/control/payload.h"
#include "engine/paths/digests.h"
#include "engine/storage/namespaces.h"

namespace peercached {

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

}  // namespace peercached
