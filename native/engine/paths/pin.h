// A worker's pin. The control plane finds the holders and asks them (peercached/peer/pins/).
#pragma once

#include <span>
#include <string>

#include "engine/control/control_queue.h"
#include "ipc/handler.h"

namespace peercached {

// As RequestHandler::pin().
std::string pin_pages(ControlQueue& control, const RequestContext& context,
                      std::span<PageRef> keys);

}  // namespace peercached
