// Write and read speed of the disk tier beside fio's, and the time of a recovery. fio uses the same
// file system, block size and depth, in the same minutes.
//
//   make bench-disk ARGS="[DIRECTORY [MIB [ROUNDS [PAGES [KIB ...]]]]]"
//                                            default: /var/tmp 1024 3 250000 16 128 1024
//
// fio and the tier take turns, also at going first. Each round compares its two speeds; the result
// is the median of the rounds, with quartiles. Without fio, only the tier's speeds are shown.
// Segments are as large as with a disk_size of 16 GiB.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <sstream>
#include <thread>

#include "common/copy.h"
#include "disk/aligned_buffer.h"
#include "disk/log.h"
#include "disk/segment_store.h"

namespace peercached::disk {
namespace {

constexpr uint64_t kMiB = 1 << 20;

double seconds_since(TimePoint begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

// The tier's speed and fio's, for each round.
struct Beside {
  std::vector<double> ours, fio;

  // "1.23 GB/s, fio 1.30 (95 %, 93 to 97)"
  std::string text() const {
    std::vector<double> shares;
    for (size_t i = 0; i < ours.size(); ++i) shares.push_back(fio[i] > 0 ? ours[i] / fio[i] : 0);
    std::ranges::sort(shares);
    char line[128];
    std::snprintf(line, sizeof line, "%.2f GB/s, fio %.2f (%.0f %%, %.0f to %.0f)", median(ours),
                  median(fio), 100 * median(shares), 100 * shares[shares.size() / 4],
                  100 * shares[shares.size() * 3 / 4]);
    return line;
  }
};

Digest digest_of_page(uint64_t number) {
  return {number * 0x9e3779b97f4a7c15ULL, (number + 1) * 0xbf58476d1ce4e5b9ULL};
}

class Bench {
 public:
  Bench(std::string folder, uint64_t bytes) : folder_(std::move(folder)), bytes_(bytes) {
    std::filesystem::create_directory(folder_);
    source_.reserve(kSourceBytes);
    std::mt19937_64 random(1);
    for (uint64_t at = 0; at < kSourceBytes; at += 8) {
      const uint64_t word = random();
      std::memcpy(source_.data() + at, &word, 8);
    }
  }
  ~Bench() { std::filesystem::remove_all(folder_); }

  void open(uint64_t size_bytes) {
    DiskConfig config;
    config.path = folder_ + "/tier";
    config.size_bytes = size_bytes;
    tier_ = open_disk_tier(config, [](auto) {});
  }
  void close() { tier_.reset(); }
  void remove() {
    close();
    std::filesystem::remove_all(folder_ + "/tier");
  }

  // GB/s from the first put until all pages are written.
  double write(uint32_t page_bytes, uint64_t count) {
    const uint64_t distinct = kSourceBytes / page_bytes;
    std::vector<uint64_t> sums(std::min(distinct, count));
    for (uint64_t i = 0; i < sums.size(); ++i)
      sums[i] = checksum(source_.data() + i * page_bytes, page_bytes);
    const TimePoint begin = Clock::now();
    for (uint64_t i = 0; i < count; ++i) {
      DiskPage page;
      page.digest = digest_of_page(i);
      page.checksum = sums[i % distinct];
      page.length = page_bytes;
      while (tier_->put(page, source_.data() + i % distinct * page_bytes, [](bool) {}) ==
             PutOutcome::skipped_full) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    if (!tier_->flush(Deadline::after_ms(600'000))) std::puts("not written in ten minutes");
    return static_cast<double>(count * page_bytes) / seconds_since(begin) / 1e9;
  }

  // GB/s of verified pages, in random order or in the order of their puts. Batches are several
  // times the depth. There are two callers, like two workers: while one reads the last pages of its
  // batch, the other's are in flight. fio likewise always has its next request in flight.
  double read(uint32_t page_bytes, uint64_t count, bool in_order) {
    std::vector<uint64_t> order(count);
    for (uint64_t i = 0; i < count; ++i) order[i] = i;
    if (!in_order) std::shuffle(order.begin(), order.end(), std::mt19937_64(2));
    const uint64_t batch_pages = std::min<uint64_t>(256, 32 * kMiB / page_bytes);
    std::atomic<uint64_t> missing{0}, next{0};
    const auto call = [&] {
      AlignedBuffer dest(batch_pages * page_bytes);
      for (uint64_t at; (at = next.fetch_add(batch_pages)) < count;) {
        std::vector<DiskRead> batch;
        for (uint64_t i = at; i < std::min(count, at + batch_pages); ++i) {
          batch.push_back({digest_of_page(order[i]), dest.data() + (i - at) * page_bytes,
                           page_bytes, PageStatus::pending, 0});
        }
        tier_->read(batch, Deadline::after_ms(600'000), true);
        for (const DiskRead& one : batch) missing += one.status != PageStatus::ok;
      }
    };
    const TimePoint begin = Clock::now();
    std::thread other(call);
    call();
    other.join();
    const double seconds = seconds_since(begin);
    if (missing > 0) std::printf("%" PRIu64 " pages could not be read\n", missing.load());
    return static_cast<double>(count * page_bytes) / seconds / 1e9;
  }

  // GB/s, or 0 without fio. `write`: 2 MiB blocks, like the tier's batches.
  double fio(bool write, uint32_t page_bytes) {
    std::ostringstream command;
    command << "fio --minimal --name=x --directory=" << folder_
            << " --direct=1 --size=" << bytes_ / 2 << " --numjobs=2 --group_reporting"
            << " --refill_buffers=0 --filename_format='fio.$jobnum'";
    if (write) {
      command << " --rw=write --bs=" << kBatchBytes << " --ioengine=libaio --iodepth=2"
              << " --fallocate=posix --overwrite=0 --end_fsync=1 --unlink=0";
    } else {
      command << " --rw=randread --bs=" << page_bytes << " --ioengine="
              << (stats().io.ends_with("io_uring") ? "io_uring --iodepth=16"
                                                   : "libaio --iodepth=8");
    }
    command << " 2>/dev/null";
    FILE* output = ::popen(command.str().c_str(), "r");
    char line[4096] = {};
    const bool any = output != nullptr && std::fgets(line, sizeof line, output) != nullptr;
    if (output != nullptr) ::pclose(output);
    if (!any) return 0;
    std::istringstream fields(line);
    std::string field;
    for (int i = 0; i <= (write ? 47 : 6); ++i) std::getline(fields, field, ';');
    return std::atof(field.c_str()) * 1024 / 1e9;
  }
  void forget_fio_files() {
    for (int job = 0; job < 2; ++job)
      std::filesystem::remove(folder_ + "/fio." + std::to_string(job));
  }

  // Gives deleted blocks back to the disk now, as the mount option "discard" does. Otherwise that
  // would happen while the next round writes.
  void settle() {
    ::sync();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }

  DiskStats stats() const { return tier_->stats(); }

 private:
  static constexpr uint64_t kSourceBytes = 64 * kMiB;
  const std::string folder_;
  const uint64_t bytes_;
  AlignedBuffer source_;
  std::unique_ptr<DiskTier> tier_;
};

void compare(Bench& bench, uint32_t page_bytes, uint64_t bytes, int rounds) {
  Beside write, read;
  std::vector<double> in_order;
  const uint64_t count = bytes / page_bytes;
  std::string io;
  double amplification = 0;
  for (int round = 0; round < rounds; ++round) {
    bench.open(std::max(2 * bytes, 16 * 1024 * kMiB));
    const auto in_turns = [&](auto&& ours, auto&& theirs) {
      if (round % 2 == 0) ours();
      theirs();
      if (round % 2 != 0) ours();
    };
    in_turns([&] { write.ours.push_back(bench.write(page_bytes, count)); },
             [&] { write.fio.push_back(bench.fio(true, page_bytes)); });
    in_turns([&] { read.ours.push_back(bench.read(page_bytes, count, false)); },
             [&] { read.fio.push_back(bench.fio(false, page_bytes)); });
    in_order.push_back(bench.read(page_bytes, count, true));
    const DiskStats stats = bench.stats();
    io = stats.io;
    amplification = static_cast<double>(stats.disk_bytes_written) /
                    static_cast<double>(stats.payload_bytes_written);
    bench.forget_fio_files();
    bench.remove();
    bench.settle();
  }
  std::printf("%5u KiB pages (%s): write %s; read %s, in order %.2f; write amplification %.3f\n",
              page_bytes / 1024, io.c_str(), write.text().c_str(), read.text().c_str(),
              median(in_order), amplification);
  std::fflush(stdout);
}

void recovery(Bench& bench, uint64_t pages) {
  constexpr uint32_t kPageBytes = 4096;
  bench.open(pages * 6000 + 64 * kMiB);
  bench.write(kPageBytes, pages);
  bench.close();
  bench.open(pages * 6000 + 64 * kMiB);
  const DiskStats stats = bench.stats();
  std::printf(
      "recovery of %" PRIu64 " pages in %" PRIu64 " segments: %" PRIu64
      " ms, %.2f s per million; index %.0f bytes a page\n",
      stats.recovery.pages, stats.recovery.segments, stats.recovery.ms,
      static_cast<double>(stats.recovery.ms) * 1e3 / static_cast<double>(stats.recovery.pages),
      static_cast<double>(stats.index_bytes) / static_cast<double>(stats.pages));
  bench.remove();
}

}  // namespace
}  // namespace peercached::disk

int main(int argc, char** argv) {
  using namespace peercached::disk;
  const std::string parent = argc > 1 ? argv[1] : "/var/tmp";
  const uint64_t bytes = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1024) * kMiB;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 3;
  const uint64_t pages = argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 250'000;
  Bench bench(parent + "/peercached-disk-bench." + std::to_string(::getpid()), bytes);
  std::vector<uint32_t> kibs;
  for (int i = 5; i < argc; ++i) kibs.push_back(static_cast<uint32_t>(std::atoi(argv[i])));
  if (kibs.empty()) kibs = {16, 128, 1024};
  for (const uint32_t kib : kibs) compare(bench, kib * 1024, bytes, rounds);
  recovery(bench, pages);
}
