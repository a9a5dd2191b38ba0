// The bucket: one cache line of the index, 14 entries, readable without a lock.
//
//   offset 0  u64  header: version (32 bits, odd while the bucket changes), occupied (14),
//                  overflow (18)
//   offset 8  u32  entries [14]: tag (15 bits of the digest), cell (17): where the record is
//
// `occupied` has a bit for each entry in use. `overflow` counts records that found this bucket full
// and have their entry further along the probe sequence. A search ends at the first bucket where it
// is 0.
//
// A reader loads the header, then the entries and the cells that they name, then the header again.
// Equal and even means that it saw one consistent state: a cell changes or is reused only while the
// bucket that names it changes. C++ wants a fence before the second load, but ThreadSanitizer does
// not model fences. Instead, every content word is loaded with acquire and stored with release. A
// reader that sees a new word then also sees the odd version set before it. On x86 all of these are
// plain moves.
#pragma once

// ThreadSanitizer treats vector loads as plain loads and would report races with writers.
#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)
#define PEERCACHED_SSE2
#include <emmintrin.h>
#endif

#include <atomic>
#include <cstdint>
#include <utility>

namespace peercached {

inline constexpr unsigned kBucketSlots = 14;
inline constexpr uint16_t kAllSlots = (1u << kBucketSlots) - 1;

// Plain words. Several threads touch them, only through the functions below.
struct alignas(64) Bucket {
  uint64_t header;
  uint32_t entries[kBucketSlots];
};
static_assert(sizeof(Bucket) == 64);

// The header, unpacked.
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

// Packs and unpacks an entry.
struct BucketEntry {
  static constexpr unsigned kCellBits = 17;
  static constexpr uint32_t kCellsMax = uint32_t{1} << kCellBits;

  // The tag comes from the half of the digest that does not choose the bucket.
  static uint32_t tag_of(uint64_t digest_lo) {
    return static_cast<uint32_t>(digest_lo) & (~uint32_t{0} >> kCellBits);
  }
  static uint32_t of(uint64_t digest_lo, uint32_t cell) {
    return tag_of(digest_lo) << kCellBits | cell;
  }
  static uint32_t cell_of(uint32_t entry) { return entry & (kCellsMax - 1); }
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

// Calls f(0), ..., f(count - 1) as straight-line code. These loops dominate the cost of a lookup,
// and compilers do not unroll loops over atomics.
template <unsigned count, typename F>
void unrolled(F&& f) {
  [&]<unsigned... i>(std::integer_sequence<unsigned, i...>) { (f(i), ...); }
  (std::make_integer_sequence<unsigned, count>());
}

// Bit mask of the entries with the digest's tag. Compare the cell to confirm the digest.
inline uint16_t slots_matching(Bucket& bucket, uint64_t digest_lo, uint16_t occupied) {
  const uint32_t tag = BucketEntry::tag_of(digest_lo);
  unsigned match = 0;
  unrolled<kBucketSlots>([&](unsigned slot) {
    match |= unsigned{load_acquire(bucket.entries[slot]) >> BucketEntry::kCellBits == tag} << slot;
  });
  return static_cast<uint16_t>(match & occupied);
}

// The same with fewer instructions and no ordering: for callers that exclude writers, and for
// hints.
inline uint16_t slots_matching_unordered(Bucket& bucket, uint64_t digest_lo, uint16_t occupied) {
  const uint32_t tag = BucketEntry::tag_of(digest_lo);
  unsigned match = 0;
#ifdef PEERCACHED_SSE2
  // The whole line as 16 words, narrowed to a bit each; the first two are the header.
  const __m128i wanted = _mm_set1_epi32(static_cast<int>(tag));
  const auto* line = reinterpret_cast<const __m128i*>(&bucket);
  const auto equal = [&](unsigned four) {
    const __m128i tags = _mm_srli_epi32(_mm_load_si128(line + four), BucketEntry::kCellBits);
    return _mm_cmpeq_epi32(tags, wanted);
  };
  const __m128i words =
      _mm_packs_epi16(_mm_packs_epi32(equal(0), equal(1)), _mm_packs_epi32(equal(2), equal(3)));
  match = static_cast<unsigned>(_mm_movemask_epi8(words)) >> 2;
#else
  unrolled<kBucketSlots>([&](unsigned slot) {
    match |= unsigned{load_relaxed(bucket.entries[slot]) >> BucketEntry::kCellBits == tag} << slot;
  });
#endif
  return static_cast<uint16_t>(match & occupied);
}

// For one writer at a time. Keeps the version odd while the bucket or a cell that it names changes.
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

  void put(unsigned slot, uint32_t entry) {
    store_release(bucket_.entries[slot], entry);
    header_.occupied |= static_cast<uint16_t>(1u << slot);
  }
  void clear(unsigned slot) { header_.occupied &= static_cast<uint16_t>(~(1u << slot)); }
  void add_overflow(int step) { header_.overflow += static_cast<uint32_t>(step); }

 private:
  Bucket& bucket_;
  BucketHeader header_;
};

}  // namespace peercached
