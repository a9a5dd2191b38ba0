// The bucket: 14 records in 512 bytes, readable without a lock and, one day, one-sidedly.
//
//   offset   0  u64  header: version (32 bits, odd while the bucket changes), occupied (14),
//                    overflow (18)
//   offset   8  u64  digest.lo of each slot        [14]
//   offset 120  u32  the rest of each record       [14][7], see packed_record.h
//
// `occupied` has a bit for each slot in use. `overflow` counts the records that found this bucket
// full on their way and live further on: a search may end at the first bucket where it is 0.
//
// A reader takes the header, then what it wants, then the header again: equal and even means
// that it saw one state. C++ wants a fence before that second look, but ThreadSanitizer does not
// model fences; instead every word of the content is loaded with acquire and stored with
// release. Whoever sees a new word then also sees the odd version set before it. On x86 all of
// these are plain moves.
#pragma once

// ThreadSanitizer takes vectors for plain loads of what another thread may be changing.
#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)
#define PEERCACHED_SSE2
#include <emmintrin.h>
#endif

#include <atomic>
#include <bit>
#include <cstdint>
#include <utility>

#include "shard/packed_record.h"

namespace peercached {

inline constexpr unsigned kBucketSlots = 14;
inline constexpr uint16_t kAllSlots = (1u << kBucketSlots) - 1;

// Plain words, touched by several threads only through the functions below.
struct alignas(64) Bucket {
  uint64_t header;
  uint64_t lo[kBucketSlots];
  uint32_t rest[kBucketSlots][PackedRecord::kWords];
};
static_assert(sizeof(Bucket) == 512);

// The header taken apart.
struct BucketHeader {
  uint32_t version = 0;
  uint16_t occupied = 0;
  uint32_t overflow = 0;

  static BucketHeader of(uint64_t word) {
    return {static_cast<uint32_t>(word), static_cast<uint16_t>(word >> 32 & kAllSlots),
            static_cast<uint32_t>(word >> (32 + kBucketSlots))};
  }
  uint64_t word() const {
    return uint64_t{version} | uint64_t{occupied} << 32 | uint64_t{overflow} << (32 + kBucketSlots);
  }
  bool changing() const { return version & 1; }
};

template <typename Word>
Word load_acquire(Word& word) {
  return std::atomic_ref<Word>(word).load(std::memory_order_acquire);
}
template <typename Word>
Word load_relaxed(Word& word) {
  return std::atomic_ref<Word>(word).load(std::memory_order_relaxed);
}
template <typename Word>
void store_release(Word& word, Word value) {
  std::atomic_ref<Word>(word).store(value, std::memory_order_release);
}

// Calls f(0), ..., f(count - 1) as straight code: these loops are the whole cost of a lookup, and
// compilers leave loops over atomics alone.
template <unsigned count, typename F>
void unrolled(F&& f) {
  [&]<unsigned... i>(std::integer_sequence<unsigned, i...>) { (f(i), ...); }
  (std::make_integer_sequence<unsigned, count>());
}

// Which slots hold this half of a digest; two records that share it are as good as certain to
// share the other half.
inline uint16_t slots_matching(Bucket& bucket, uint64_t lo, uint16_t occupied) {
  unsigned match = 0;
  unrolled<kBucketSlots>(
      [&](unsigned slot) { match |= unsigned{load_acquire(bucket.lo[slot]) == lo} << slot; });
  return static_cast<uint16_t>(match & occupied);
}

// The same with fewer instructions and no order: for who keeps writers away, and for guesses.
inline uint16_t slots_matching_unordered(Bucket& bucket, uint64_t lo, uint16_t occupied) {
  unsigned match = 0;
#ifdef PEERCACHED_SSE2
  // Two slots at a time, compared as four halves of 32 bits, each narrowed to a bit.
  const __m128i wanted = _mm_set1_epi64x(static_cast<int64_t>(lo));
  const auto halves = [&](unsigned slot) {
    const auto* two = reinterpret_cast<const __m128i*>(bucket.lo + slot);
    return _mm_cmpeq_epi32(_mm_loadu_si128(two), wanted);
  };
  const __m128i first =
      _mm_packs_epi16(_mm_packs_epi32(halves(0), halves(2)), _mm_packs_epi32(halves(4), halves(6)));
  const __m128i rest = _mm_packs_epi16(_mm_packs_epi32(halves(8), halves(10)),
                                       _mm_packs_epi32(halves(12), _mm_setzero_si128()));
  const auto equal = static_cast<uint32_t>(_mm_movemask_epi8(first)) |
                     static_cast<uint32_t>(_mm_movemask_epi8(rest)) << 16;
  for (uint32_t both = equal & equal >> 1 & 0x5555555; both != 0; both &= both - 1)
    match |= 1u << std::countr_zero(both) / 2;
#else
  unrolled<kBucketSlots>(
      [&](unsigned slot) { match |= unsigned{load_relaxed(bucket.lo[slot]) == lo} << slot; });
#endif
  return static_cast<uint16_t>(match & occupied);
}

inline PackedRecord load_record(Bucket& bucket, unsigned slot) {
  PackedRecord record;
  unrolled<PackedRecord::kWords>(
      [&](unsigned w) { record.words[w] = load_acquire(bucket.rest[slot][w]); });
  return record;
}

inline void store_record(Bucket& bucket, unsigned slot, uint64_t lo, const PackedRecord& record) {
  store_release(bucket.lo[slot], lo);
  unrolled<PackedRecord::kWords>(
      [&](unsigned w) { store_release(bucket.rest[slot][w], record.words[w]); });
}

inline HolderIndex load_holder(Bucket& bucket, unsigned slot) {
  return PackedRecord::holder_in(load_acquire(bucket.rest[slot][PackedRecord::kHolderWord]));
}

// Writers, one at a time. Changes the content between an odd and an even version.
class BucketChange {
 public:
  explicit BucketChange(Bucket& bucket)
      : bucket_(bucket), header_(BucketHeader::of(load_relaxed(bucket.header))) {
    BucketHeader odd = header_;
    ++odd.version;
    store_release(bucket_.header, odd.word());
  }
  ~BucketChange() {
    header_.version += 2;
    store_release(bucket_.header, header_.word());
  }
  BucketChange(const BucketChange&) = delete;
  BucketChange& operator=(const BucketChange&) = delete;

  void put(unsigned slot, uint64_t lo, const PackedRecord& record) {
    store_record(bucket_, slot, lo, record);
    header_.occupied |= static_cast<uint16_t>(1u << slot);
  }
  void clear(unsigned slot) { header_.occupied &= static_cast<uint16_t>(~(1u << slot)); }
  void add_overflow(int step) { header_.overflow += static_cast<uint32_t>(step); }

 private:
  Bucket& bucket_;
  BucketHeader header_;
};

}  // namespace peercached
