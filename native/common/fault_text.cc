#include "common/fault_text.h"

#include <charconv>
#include <stdexcept>
#include <string>

namespace peercached {
namespace {

template <typename Number>
Number number(std::string_view part, std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    refuse_fault(part, "is not a number");
  return value;
}

}  // namespace

void refuse_fault(std::string_view part, std::string_view why) {
  throw std::invalid_argument(
      "fault plan: '" + std::string(part) + "' " + std::string(why) +
      "; faults look like seed=7,corrupt=0.01,disk_stall=1,disk_stall_ms=50");
}

void parse_faults(std::string_view text, const FaultFields& fields,
                  bool (*theirs)(std::string_view name)) {
  for (std::string_view rest = text; !rest.empty();) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) refuse_fault(part, "has no '='");
    const std::string_view name = part.substr(0, equals), value = part.substr(equals + 1);
    const auto probability = fields.probabilities.find(name);
    const auto counted = fields.numbers.find(name);
    if (probability != fields.probabilities.end()) {
      *probability->second = number<double>(part, value);
      if (!(*probability->second >= 0 && *probability->second <= 1))
        refuse_fault(part, "is not between 0 and 1");
    } else if (counted != fields.numbers.end()) {
      *counted->second = number<uint64_t>(part, value);
    } else if (!theirs(name)) {
      refuse_fault(part, "names no fault");
    }
  }
}

}  // namespace peercached
