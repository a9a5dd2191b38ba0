// remove, clear, pin and hints of a worker: the control plane runs them in the whole cluster.
#pragma once

#include <span>
#include <string>

#include "engine/control/control_queue.h"
#include "ipc/handler.h"

namespace peercached {

// The answers of RequestHandler::remove(), clear(), pin() and hint().
std::string remove_everywhere(ControlQueue& control, const RequestContext& context,
                              std::span<PageRef> keys);
std::string clear_everywhere(ControlQueue& control, const RequestContext& context);
std::string pin_pages(ControlQueue& control, const RequestContext& context,
                      std::span<PageRef> keys);
HintAnswer hand_on_hints(ControlQueue& control, const RequestContext& context,
                         std::span<PageRef> keys, std::string_view envelope);

}  // namespace peercached
