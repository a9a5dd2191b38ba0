// Prints the speed of the RDMA engine between two soft-RoCE devices in one process, beside bare
// READs of the same sizes on one queue pair. They alternate several times a second, as the machine
// may be busy. docs/performance.md has results.
//
//   tests/rdma/vm --nodes 4 -- tools/run bench-rdma [--threads N] [--batch PAGES] [--rails N]
//              [--only KIB] [--pages N] [--set MIB] [--turns N]
//
// "one place" repeats bare READs of one page, like ib_read_bw. "bare" READs as many places as the
// engine, --set in total (64 MiB); the shares refer to it. --pages reads exactly that many pages of
// each size and no bare ones, for counting instructions.

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bench/bare_reads.h"
#include "rdma/rdma_fixture.h"

namespace peercached::testing {
namespace {

constexpr double kSecondsPerTurn = 0.25;
constexpr uint64_t kBareBytesPerTurn = 64ull << 20;

struct Options {
  size_t threads = 1, batch = 32, rails = 1, pages = 0;
  uint32_t only_bytes = 0;
  uint64_t set_bytes = 64ull << 20;
  size_t turns = 9;
};

double seconds_since(TimePoint start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Figures {
  double gigabytes_per_second = 0, us_per_batch = 0;
  size_t bad = 0;
};

double bare_gigabytes_per_second(rdma::BareReads& reads, uint32_t length) {
  const uint64_t count = std::max<uint64_t>(1, kBareBytesPerTurn / length);
  return static_cast<double>(count * length) / 1e9 / reads.read(count);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The threads take turns over all batches; each has its own.
Figures measure(RdmaReader& reader, std::vector<std::unique_ptr<Reading>>& readings,
                const Options& options, Verify verify, size_t batches_max) {
  std::atomic<size_t> next{0}, done{0}, bad{0};
  std::atomic<uint64_t> bytes{0};
  std::vector<std::thread> threads;
  const TimePoint start = Clock::now();
  const size_t share = readings.size() / options.threads;
  for (size_t t = 0; t < options.threads; ++t) {
    threads.emplace_back([&, t] {
      for (size_t turn = 0; next++ < batches_max; ++turn) {
        Reading& reading = *readings[t * share + turn % share];
        for (ReadOp& op : reading.ops) op.checksum.reset();
        reading.read(reader.fabric.engine(), 10'000, verify);
        for (const ReadOp& op : reading.ops) bytes += op.length;
        bad += reading.ops.size() - reading.count(PageStatus::ok);
        ++done;
        if (options.pages == 0 && seconds_since(start) > kSecondsPerTurn) break;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = seconds_since(start);
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  return {gigabytes / seconds, seconds * 1e6 / static_cast<double>(done), bad};
}

void run(const Options& options) {
  install_fault_guard();
  std::vector<std::string> ours, theirs;
  for (size_t rail = 0; rail < options.rails; ++rail) {
    theirs.push_back("rxe" + std::to_string(2 * rail));
    ours.push_back("rxe" + std::to_string(2 * rail + 1));
  }
  std::printf(
      "threads %zu, batches of %zu, rails %zu, %llu MiB; GB/s, share of bare READs\n%10s %15s %8s "
      "%15s %15s %10s\n",
      options.threads, options.batch, options.rails,
      static_cast<unsigned long long>(options.set_bytes >> 20), "page", "one place", "bare",
      "header", "checksum", "us/batch");
  for (uint32_t length : {4u << 20, 1u << 20, 128u << 10, 16u << 10}) {
    if (options.only_bytes != 0 && options.only_bytes != length) continue;
    const uint64_t set_bytes =
        options.pages == 0 ? options.set_bytes : length * options.batch * options.threads;
    RdmaHolder holder(std::max<uint64_t>(set_bytes * 3, 64 << 20), theirs);
    RdmaReader reader(ours);
    reader.knows(holder);
    uint64_t number = 0;
    std::vector<std::unique_ptr<Reading>> readings;
    const size_t batches = std::max<size_t>(set_bytes / (length * options.batch), options.threads);
    const auto pages = std::min<size_t>(options.batch, set_bytes / length / options.threads);
    for (size_t b = 0; b < batches; ++b) {
      std::vector<RecordRow> rows;
      for (size_t i = 0; i < pages; ++i) rows.push_back(holder.set(number++, length));
      readings.push_back(std::make_unique<Reading>(rows));
      Reading& reading = *readings.back();
      reader.fabric.regions().add(reading.memory.data(), reading.memory.size());
    }
    uint64_t first = 0;
    for (auto& reading : readings) {  // connects, registers, and checks each byte
      reading->read(reader.fabric.engine());
      expect_pages(*reading, first);
      first += reading->ops.size();
    }
    if (options.pages != 0) {
      for (Verify verify : {Verify::header, Verify::checksum}) {
        measure(reader, readings, options, verify, (options.pages + pages - 1) / pages);
      }
    } else {
      std::vector<std::byte> from(set_bytes, std::byte{7}), to(set_bytes);
      const auto port = [](const auto& end) {
        const rdma::Rail& rail = *end.fabric.rails()[0];
        rdma::RailPolicy policy;
        policy.gid_index = rail.address().gid.index;
        return rdma::BareReads::End{rail.port, policy};
      };
      const auto reads = [&](uint64_t bytes) {
        return rdma::BareReads(port(holder), port(reader), std::span(from).first(bytes),
                               std::span(to).first(bytes), length, 1);
      };
      rdma::BareReads one_place = reads(length), bare = reads(set_bytes);
      std::vector<double> cached, cached_share, alone, by_header, by_sum, header_share, sum_share,
          us;
      size_t bad = 0;
      for (size_t turn = 0; turn < options.turns; ++turn) {
        cached.push_back(bare_gigabytes_per_second(one_place, length));
        alone.push_back(bare_gigabytes_per_second(bare, length));
        cached_share.push_back(100 * cached.back() / alone.back());
        const Figures header = measure(reader, readings, options, Verify::header, SIZE_MAX);
        const Figures sum = measure(reader, readings, options, Verify::checksum, SIZE_MAX);
        by_header.push_back(header.gigabytes_per_second);
        by_sum.push_back(sum.gigabytes_per_second);
        header_share.push_back(100 * by_header.back() / alone.back());
        sum_share.push_back(100 * by_sum.back() / alone.back());
        us.push_back(header.us_per_batch);
        bad += header.bad + sum.bad;
      }
      std::printf("%6u KiB %8.3f (%3.0f%%) %8.3f %8.3f (%3.0f%%) %8.3f (%3.0f%%) %10.1f%s\n",
                  length >> 10, median(cached), median(cached_share), median(alone),
                  median(by_header), median(header_share), median(by_sum), median(sum_share),
                  median(us), bad == 0 ? "" : "  NOT ALL OK");
      std::fflush(stdout);
    }
    for (auto& reading : readings) reader.fabric.regions().remove(reading->memory.data());
  }
}

}  // namespace
}  // namespace peercached::testing

int main(int argc, char** argv) {
  peercached::testing::Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const auto value = static_cast<size_t>(std::atol(argv[i + 1]));
    if (std::strcmp(argv[i], "--threads") == 0) options.threads = value;
    if (std::strcmp(argv[i], "--batch") == 0) options.batch = value;
    if (std::strcmp(argv[i], "--rails") == 0) options.rails = value;
    if (std::strcmp(argv[i], "--pages") == 0) options.pages = value;
    if (std::strcmp(argv[i], "--set") == 0) options.set_bytes = value << 20;
    if (std::strcmp(argv[i], "--turns") == 0) options.turns = value;
    if (std::strcmp(argv[i], "--only") == 0)
      options.only_bytes = static_cast<uint32_t>(value) << 10;
  }
  peercached::testing::run(options);
}
