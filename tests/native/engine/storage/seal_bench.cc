// The cost of sealing pages (docs/cold-tier.md, "Sealing"), beside a copy and a copy with its
// checksum in the same run. One thread. The figures are medians.
//
//   cmake --build build/native --target seal_bench && build/native/seal_bench [PAGE_BYTES [ROUNDS]]
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "common/copy.h"
#include "engine/storage/page_seal.h"

using namespace peercached;

namespace {

constexpr size_t kObjectBytes = 16 << 20;  // more than the caches next to a core

double seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Way {
  const char* name;
  std::function<void(size_t page)> run;
  std::vector<double> wall_s = {}, cpu_s = {};
};

}  // namespace

int main(int argc, char** argv) {
  const size_t page_bytes = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 65'536;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 41;
  const size_t pages = kObjectBytes / page_bytes,
               slot = (page_bytes + PageSeal::kBytes + 63) & ~63ul;
  if (pages == 0 || rounds < 1) return 2;
  std::vector<std::byte> plain(pages * page_bytes), opened(plain.size()), copied(plain.size()),
      sealed(pages * slot);
  for (size_t i = 0; i < plain.size(); ++i)
    plain[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  PageSeal seal(std::vector<std::byte>(PageSeal::kKeyBytes + 40, std::byte{1}));
  std::vector<ObjectEntry> entries;
  for (size_t i = 0; i < pages; ++i)
    entries.push_back({{i, 1},
                       checksum(plain.data() + i * page_bytes, page_bytes),
                       static_cast<uint32_t>(i * slot),
                       static_cast<uint32_t>(page_bytes)});

  bool good = true;
  const auto from = [&](size_t i) { return plain.data() + i * page_bytes; };
  Way ways[] = {
      {"memcpy",
       [&](size_t i) { std::memcpy(copied.data() + i * page_bytes, from(i), page_bytes); }},
      {"copy and checksum",
       [&](size_t i) {
         good &= copy_and_checksum(copied.data() + i * page_bytes, from(i), page_bytes) ==
                 entries[i].checksum;
       }},
      {"seal",
       [&](size_t i) {
         good &= seal.seal(entries[i], from(i), sealed.data() + i * slot) == entries[i].checksum;
       }},
      {"open",
       [&](size_t i) {
         good &= seal.open(entries[i], sealed.data() + i * slot, opened.data() + i * page_bytes) ==
                 entries[i].checksum;
       }},
  };
  for (int round = 0; round < rounds; ++round) {
    for (Way& way : ways) {
      const double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
      for (size_t i = 0; i < pages; ++i) way.run(i);
      way.wall_s.push_back(seconds(CLOCK_MONOTONIC) - wall);
      way.cpu_s.push_back(seconds(CLOCK_THREAD_CPUTIME_ID) - cpu);
    }
  }
  if (!good || opened != plain) {
    std::puts("wrong bytes");
    return 1;
  }
  const double gb = 1e-9 * static_cast<double>(plain.size());
  const double copy_cpu = median(ways[0].cpu_s);
  std::printf("%zu pages of %zu bytes, %d rounds\n", pages, page_bytes, rounds);
  for (Way& way : ways)
    std::printf("%-18s %6.2f GB/s  %6.3f processor seconds per GB  %5.2f times memcpy\n", way.name,
                gb / median(way.wall_s), median(way.cpu_s) / gb, median(way.cpu_s) / copy_cpu);
}
