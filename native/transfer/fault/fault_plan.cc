#include <charconv>
#include <stdexcept>
#include <string_view>

#include "transfer/fault/fault.h"

namespace peercached {
namespace {

constexpr std::string_view kRemedy =
    "; faults look like seed=7,corrupt=0.01,hang=0.001 with any of seed, delay, drop, truncate, "
    "corrupt, blind, reset, hang (0 to 1) and delay_us_max";

[[noreturn]] void refuse(std::string_view part, std::string_view why) {
  throw std::invalid_argument("fault plan: '" + std::string(part) + "' " + std::string(why) +
                              std::string(kRemedy));
}

template <typename Number>
Number number(std::string_view part, std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) refuse(part, "is not a number");
  return value;
}

double probability(std::string_view part, std::string_view text) {
  const double value = number<double>(part, text);
  if (!(value >= 0 && value <= 1)) refuse(part, "is not between 0 and 1");
  return value;
}

void apply(FaultPlan& plan, std::string_view part) {
  const size_t equals = part.find('=');
  if (equals == std::string_view::npos) refuse(part, "has no '='");
  const std::string_view name = part.substr(0, equals), value = part.substr(equals + 1);
  if (name.starts_with("disk_")) return;  // the disk's: disk/faulty_io.h
  if (name == "seed") {
    plan.seed = number<uint64_t>(part, value);
  } else if (name == "delay_us_max") {
    plan.delay_us_max = number<uint32_t>(part, value);
    if (plan.delay_us_max == 0) refuse(part, "is not at least 1");
  } else if (name == "delay") {
    plan.delay = probability(part, value);
  } else if (name == "drop") {
    plan.drop = probability(part, value);
  } else if (name == "truncate") {
    plan.truncate = probability(part, value);
  } else if (name == "corrupt") {
    plan.corrupt = probability(part, value);
  } else if (name == "blind") {
    plan.blind = probability(part, value);
  } else if (name == "reset") {
    plan.reset = probability(part, value);
  } else if (name == "hang") {
    plan.hang = probability(part, value);
  } else {
    refuse(part, "names no fault");
  }
}

}  // namespace

FaultPlan parse_fault_plan(const std::string& text) {
  FaultPlan plan;
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    apply(plan, rest.substr(0, comma));
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  if (plan.delay + plan.drop + plan.truncate + plan.corrupt + plan.blind > 1 ||
      plan.reset + plan.hang > 1) {
    refuse(text, "has faults whose probabilities add up to more than 1");
  }
  return plan;
}

}  // namespace peercached
