// Prints the speed of the TCP engine over loopback, beside bare sockets in the same run. Not a
// test.
//
//   make bench-tcp ARGS="[lanes [movers]]"
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>

#include "transfer/tcp/seal.h"
#include "transfer/tcp/socket.h"
#include "transfer/tcp_fixture.h"

namespace peercached::testing {
namespace {

constexpr uint64_t kPoolBytes = 1536ull << 20;
constexpr double kSecondsPerCase = 1.0;

double cpu_seconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double seconds_since(TimePoint start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::byte* prefaulted(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  std::memset(memory, 1, bytes);
  return static_cast<std::byte*>(memory);
}

// The same memory without a protocol: sent in 1 MiB pieces, received in pieces of a gate.
struct Raw {
  double gigabytes_per_second, cpu_seconds_per_gigabyte;
};
Raw measure_raw(unsigned streams, const std::byte* from, std::byte* to, size_t bytes) {
  tcp::Socket listener(::socket(AF_INET, SOCK_STREAM, 0));
  tcp::Address address;
  std::string wrong;
  tcp::resolve("127.0.0.1", 0, address, wrong);
  if (::bind(listener.fd(), address.get(), address.bytes) != 0) std::abort();
  if (::listen(listener.fd(), 8) != 0) std::abort();
  getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address.storage), &address.bytes);
  std::vector<std::thread> threads;
  const size_t share = bytes / streams;
  const double cpu = cpu_seconds();
  const TimePoint start = Clock::now();
  constexpr int kRounds = 4;
  for (unsigned s = 0; s < streams; ++s) {
    auto out = std::make_shared<tcp::Socket>(::socket(AF_INET, SOCK_STREAM, 0));
    if (::connect(out->fd(), address.get(), address.bytes) != 0) std::abort();
    auto in = std::make_shared<tcp::Socket>(::accept(listener.fd(), nullptr, nullptr));
    tcp::tune(out->fd());
    threads.emplace_back([=] {
      for (int round = 0; round < kRounds; ++round) {
        for (size_t at = 0; at < share;) {
          const ssize_t n =
              ::send(out->fd(), from + s * share + at, std::min<size_t>(share - at, 1 << 20), 0);
          if (n <= 0) std::abort();
          at += static_cast<size_t>(n);
        }
      }
    });
    threads.emplace_back([=] {
      for (int round = 0; round < kRounds; ++round) {
        for (size_t at = 0; at < share;) {
          const ssize_t n = ::recv(in->fd(), to + s * share + at,
                                   std::min<size_t>(share - at, kGatePieceBytes), 0);
          if (n <= 0) std::abort();
          at += static_cast<size_t>(n);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double gigabytes = static_cast<double>(share * streams * kRounds) / 1e9;
  return {gigabytes / seconds_since(start), (cpu_seconds() - cpu) / gigabytes};
}

enum class Mode { in_clear, sealed, sealed_by_kernel };

void run(unsigned lanes, unsigned movers, Mode mode) {
  constexpr const char* kNames[] = {"in clear", "sealed", "sealed by the kernel"};
  TcpServerConfig port;
  port.sealed = mode != Mode::in_clear;
  const bool kernel = mode == Mode::sealed_by_kernel;
  tcp::Seal::policy.kernel_sends = tcp::Seal::policy.kernel_receives = kernel;
  RecordingWatcher watcher;
  TcpEngineConfig config;
  config.channels_per_read_max = lanes;
  config.movers = movers;
  std::byte* const source = prefaulted(kPoolBytes);
  std::byte* const dest = prefaulted(kPoolBytes);

  double raw_best = 0;
  for (unsigned streams : {1u, 2u, 4u}) {
    const Raw raw = measure_raw(streams, source, dest, kPoolBytes / 2);
    raw_best = std::max(raw_best, raw.gigabytes_per_second);
    std::printf("raw loopback, %u streams: %5.2f GB/s, %.3f cpu s/GB\n", streams,
                raw.gigabytes_per_second, raw.cpu_seconds_per_gigabyte);
  }
  munmap(source, kPoolBytes);
  std::printf("%s, lanes %u, movers %u\n%10s %6s %8s %8s %8s %9s\n", kNames[static_cast<int>(mode)],
              lanes, movers, "page", "batch", "GB/s", "of raw", "cpu s/GB", "us/batch");

  uint64_t number = 0;
  for (auto [length, batch_pages] : {std::pair<uint32_t, size_t>{4 << 20, 128},
                                     {1 << 20, 128},
                                     {128 << 10, 128},
                                     {16 << 10, 128},
                                     {4 << 10, 128},
                                     {128 << 10, 1},
                                     {4 << 10, 1}}) {
    // A pool for each case: one that is full might keep the pages of the case before.
    Holder holder(kPoolBytes, port);
    auto engine = make_reader(watcher, config);
    engine->add_peer(kPeer, holder.endpoint());
    // Several batches, so that neither side finds its bytes in the cache.
    const size_t batches =
        std::clamp<size_t>((kPoolBytes * 3 / 4) / (uint64_t{length} * batch_pages), 1, 512);
    std::vector<std::unique_ptr<Reading>> readings;
    for (size_t b = 0; b < batches; ++b) {
      std::vector<RecordRow> rows;
      for (size_t i = 0; i < batch_pages; ++i) rows.push_back(holder.set(++number, length));
      auto reading = std::make_unique<Reading>(std::vector<RecordRow>{});
      for (size_t i = 0; i < batch_pages; ++i) {
        ReadOp op;
        op.digest = rows[i].digest;
        op.offset = rows[i].offset;
        op.generation = rows[i].generation;
        op.length = length;
        op.dest = dest + (b * batch_pages + i) * length;
        reading->ops.push_back(op);
      }
      reading->batch.ops = reading->ops;
      readings.push_back(std::move(reading));
    }
    for (auto& reading : readings) reading->read(*engine);  // warm up
    if (kernel && holder.server->stats().kernel_sealed == 0) {
      std::printf("this kernel has no TLS: modprobe tls\n");
      break;
    }
    const TimePoint start = Clock::now();
    const double cpu = cpu_seconds();
    size_t rounds = 0, bad = 0;
    while (seconds_since(start) < kSecondsPerCase) {
      Reading& reading = *readings[rounds++ % batches];
      reading.read(*engine);
      bad += batch_pages - reading.count(PageStatus::ok);
    }
    const double seconds = seconds_since(start);
    const double gigabytes = static_cast<double>(rounds * batch_pages * length) / 1e9;
    std::printf("%7u KiB %6zu %8.2f %7.0f%% %8.3f %9.1f%s\n", length >> 10, batch_pages,
                gigabytes / seconds, 100 * gigabytes / seconds / raw_best,
                (cpu_seconds() - cpu) / gigabytes, seconds / static_cast<double>(rounds) * 1e6,
                bad == 0 ? "" : "  NOT ALL OK");
  }
  munmap(dest, kPoolBytes);
}

}  // namespace
}  // namespace peercached::testing

int main(int argc, char** argv) {
  const auto number = [&](int i, unsigned fallback) {
    return argc > i ? static_cast<unsigned>(std::atoi(argv[i])) : fallback;
  };
  peercached::install_fault_guard();
  using peercached::testing::Mode;
  for (const Mode mode : {Mode::in_clear, Mode::sealed, Mode::sealed_by_kernel})
    peercached::testing::run(number(1, 4), number(2, 2), mode);
}
