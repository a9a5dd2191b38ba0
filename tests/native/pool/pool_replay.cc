// Replays requests against a pool, and prints how many of their pages it found.
//
//   build/native/pool_replay PAGES <requests
//
// PAGES: how many the pool keeps. Standard input has 32-bit numbers: for each request how many
// pages it asks for, and these. A request finds the leading pages that are in the pool, uses them,
// and sets the others, as one chain. Prints two numbers: pages found, pages asked for.
// tests/bench/hit_rate.py calls it.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "common/copy.h"
#include "pool/pool.h"

namespace peercached {
namespace {

// The pool remembers evicted pages of this size and larger for as long as it can (evicted_keys.h).
constexpr uint32_t kPageBytes = 64 << 10;

Digest digest_of(uint32_t number) {
  const uint32_t salted[] = {number, 1};
  return {checksum(&number, sizeof number), checksum(salted, sizeof salted)};
}

std::unique_ptr<Pool> make_pool(uint64_t pages) {
  PoolConfig config;
  config.size_bytes = pages * (kPageBytes + sizeof(SlotHeader)) * 101 / 100;  // 1 % of rounding
  config.incarnation = 1;
  // Evicts only when a page needs the room, so that the pool keeps exactly what it can.
  config.high_watermark = config.low_watermark = 2;
  return std::make_unique<Pool>(config, [](std::span<const RecordRow>) {});
}

size_t found_of(Pool& pool, const std::vector<Digest>& chain) {
  std::vector<uint8_t> present(chain.size());
  pool.contains(chain, false, present);
  size_t found = 0;
  while (found < chain.size() && present[found] != 0) ++found;
  pool.contains(std::span(chain).first(found), true, present);
  return found;
}

bool set(Pool& pool, std::span<const Digest> digests, const Digest* parent) {
  std::vector<PageRequest> requests;
  for (const Digest& digest : digests) requests.push_back({digest, kPageBytes});
  std::vector<Reservation> reservations(digests.size());
  pool.reserve(requests, parent, PageNamespace(1), reservations);
  std::vector<PinnedPage> pages, all;
  for (const Reservation& reservation : reservations) {
    if (!reservation.page) return false;
    all.push_back(reservation.page);
    if (reservation.outcome == ReserveOutcome::reserved) pages.push_back(reservation.page);
  }
  std::vector<RecordRow> rows(pages.size());
  pool.commit(pages, rows);
  pool.unpin(all);
  return true;
}

int replay(uint64_t pages) {
  const std::unique_ptr<Pool> pool = make_pool(pages);
  uint64_t found = 0, asked = 0;
  for (uint32_t count; std::fread(&count, sizeof count, 1, stdin) == 1;) {
    std::vector<uint32_t> numbers(count);
    if (std::fread(numbers.data(), sizeof count, count, stdin) != count) return 1;
    std::vector<Digest> chain;
    for (uint32_t number : numbers) chain.push_back(digest_of(number));
    const size_t prefix = found_of(*pool, chain);
    found += prefix;
    asked += count;
    if (prefix == chain.size()) continue;
    const Digest* parent = prefix == 0 ? nullptr : &chain[prefix - 1];
    if (!set(*pool, std::span(chain).subspan(prefix), parent)) {
      std::fprintf(stderr, "the pool is smaller than a request of %u pages\n", count);
      return 1;
    }
  }
  std::printf("%llu %llu\n", static_cast<unsigned long long>(found),
              static_cast<unsigned long long>(asked));
  return 0;
}

}  // namespace
}  // namespace peercached

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s PAGES <requests\n", argv[0]);
    return 2;
  }
  return peercached::replay(std::strtoull(argv[1], nullptr, 10));
}
