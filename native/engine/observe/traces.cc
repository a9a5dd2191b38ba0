#include "engine/observe/traces.h"

#include <memory>
#include <stdexcept>
#include <utility>

#include "engine/peers/landing.h"
#include "engine/storage/namespaces.h"

namespace peercached {

void CallTraces::get(const GetPath& path, const RequestContext& context, std::span<PageRef> pages) {
  TracedCall call;
  call.caller = *context.caller;
  call.ns = context.ns->name();
  call.pages = static_cast<uint32_t>(pages.size());
  RequestContext traced = context;
  traced.trace = &call.trace;
  call.begin = Clock::now();
  path.get(traced, pages);
  call.end = Clock::now();
  for (const PageRef& page : pages) {
    if (page.status != PageStatus::ok) continue;
    ++call.ok;
    call.bytes += page.length;
  }
  const std::lock_guard lock(mutex_);
  if (calls_.size() < kCallsMax) {
    calls_.push_back(std::move(call));
  } else {
    dropped_.add();
  }
}

std::vector<TracedCall> CallTraces::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(calls_, {});
}

TracedGet trace_get(RequestHandler& handler, Transports& transports, std::string_view name,
                    std::string_view key, uint32_t length, Deadline deadline) {
  const std::shared_ptr<Namespace> ns = handler.open_namespace(name, kNoUser);
  if (ns == nullptr) throw std::invalid_argument("namespace: this daemon has seen its maximum");
  Landing landing(transports, (uint64_t{length} + 4095) / 4096 * 4096);
  Trace trace;
  RequestContext context;
  context.ns = ns.get();
  context.deadline = deadline;
  context.gate = &landing.gate();
  context.trace = &trace;
  PageRef page;
  page.key = key;
  page.memory = landing.base();
  page.length = length;
  TracedGet traced;
  traced.begin = Clock::now();
  handler.get(context, std::span(&page, 1));
  traced.end = Clock::now();
  traced.status = page.status;
  traced.steps = std::move(trace.steps);
  return traced;
}

}  // namespace peercached
