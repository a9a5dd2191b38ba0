// Measures the limits of this machine, to compare the benchmark's figures with.

#include <nanobind/stl/string.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>

#include "bindings/packed.h"
#include "common/copy.h"

namespace peercached {

namespace {

constexpr int kRepeats = 5;

template <typename Body>
double median_gbps(size_t bytes, Body body) {
  double rates[kRepeats];
  for (double& rate : rates) {
    const auto start = std::chrono::steady_clock::now();
    body();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    rate = static_cast<double>(bytes) / took.count() / 1e9;
  }
  std::sort(std::begin(rates), std::end(rates));
  return rates[kRepeats / 2];
}

nb::dict limits(size_t bytes_per_case) {
  struct Row {
    std::string name;
    double gbps;
  };
  std::vector<Row> rows;
  {
    nb::gil_scoped_release unlocked;
    const auto source = std::make_unique<char[]>(bytes_per_case);
    const auto dest = std::make_unique<char[]>(bytes_per_case);
    std::memset(source.get(), 7, bytes_per_case);
    std::memset(dest.get(), 8, bytes_per_case);
    uint64_t sink = 0;
    for (const auto& [label, page] : {std::pair{"16k", size_t{16} << 10},
                                      {"128k", size_t{128} << 10},
                                      {"1m", size_t{1} << 20},
                                      {"4m", size_t{4} << 20}}) {
      const size_t total = bytes_per_case / page * page;
      auto each = [&](auto&& body) {
        return median_gbps(total, [&] {
          for (size_t at = 0; at < total; at += page) body(at);
        });
      };
      rows.push_back({std::string("memcpy_") + label, each([&](size_t at) {
                        std::memcpy(dest.get() + at, source.get() + at, page);
                      })});
      rows.push_back({std::string("copy_and_checksum_") + label, each([&](size_t at) {
                        sink += copy_and_checksum(dest.get() + at, source.get() + at, page);
                      })});
      rows.push_back({std::string("checksum_") + label,
                      each([&](size_t at) { sink += checksum(source.get() + at, page); })});
    }
    // Keeps the sums from being optimised away.
    if (sink == 1) rows.push_back({"", 0});
  }
  nb::dict out;
  for (const Row& row : rows) out[row.name.c_str()] = row.gbps;
  return out;
}

}  // namespace

void bind_limits(nb::module_& module) { module.def("limits", &limits, nb::arg("bytes_per_case")); }

}  // namespace peercached
