#include "common/fault_text.h"
#include "transfer/fault/fault.h"

namespace peercached {

FaultPlan parse_fault_plan(const std::string& text) {
  FaultPlan plan;
  const FaultFields fields = {{{"delay", &plan.delay},
                               {"drop", &plan.drop},
                               {"truncate", &plan.truncate},
                               {"corrupt", &plan.corrupt},
                               {"blind", &plan.blind},
                               {"reset", &plan.reset},
                               {"hang", &plan.hang}},
                              {{"seed", &plan.seed}, {"delay_us_max", &plan.delay_us_max}}};
  parse_faults(text, fields, is_disk_fault);
  if (plan.delay_us_max == 0) refuse_fault("delay_us_max=0", "is not at least 1");
  if (plan.delay + plan.drop + plan.truncate + plan.corrupt + plan.blind > 1 ||
      plan.reset + plan.hang > 1) {
    refuse_fault(text, "has probabilities that add up to more than 1");
  }
  return plan;
}

}  // namespace peercached
