// Parses a plan of faults, for tests: "seed=7,corrupt=0.01,disk_stall=1".
#pragma once

#include <cstdint>
#include <map>
#include <string_view>

namespace peercached {

struct FaultFields {
  std::map<std::string_view, double*> probabilities;  // 0 to 1
  std::map<std::string_view, uint64_t*> numbers;
};

// Names of disk faults start with "disk_". One text holds disk faults and all others.
inline bool is_disk_fault(std::string_view name) { return name.starts_with("disk_"); }

[[noreturn]] void refuse_fault(std::string_view part, std::string_view why);

// Sets the fields that the text names, and skips names that are `theirs`. Throws
// std::invalid_argument with the bad part.
void parse_faults(std::string_view text, const FaultFields& fields,
                  bool (*theirs)(std::string_view name));

}  // namespace peercached
