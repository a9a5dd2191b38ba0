#include "engine/observe/trace_get.h"

#include <memory>
#include <stdexcept>

#include "engine/peers/landing.h"
#include "engine/storage/namespaces.h"

namespace peercached {

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
