// Kernels with AVX-512, AVX2 and SSE2.
#ifdef __x86_64__

#include <immintrin.h>

#include "common/copy_kernels.h"
#include "common/copy_stripes.h"

namespace peercached {
namespace {

#if defined(__GNUC__) && !defined(__clang__)
// GCC's own header sets "undefined" registers from themselves (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#define PC_AVX512 __attribute__((target("avx512f")))
#define PC_AVX2 __attribute__((target("avx2")))

// Each instruction set gives the same two functions. `blocks` runs whole blocks and then the
// stripes that are left, with the accumulators in registers throughout.

// --- AVX-512: one register is one stripe ---------------------------------------------------

template <Store store>
PC_INLINE PC_AVX512 __m512i stripe_avx512(__m512i acc, std::byte* dest, const std::byte* source,
                                          const unsigned char* key) {
  const __m512i value = _mm512_loadu_si512(source);
  if constexpr (store == Store::streamed)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(dest), value);
  if constexpr (store == Store::cached) _mm512_storeu_si512(dest, value);
  const __m512i keyed = _mm512_xor_si512(value, _mm512_loadu_si512(key));
  const __m512i high = _mm512_srli_epi64(keyed, 32);
  const __m512i swapped =
      _mm512_shuffle_epi32(value, static_cast<_MM_PERM_ENUM>(_MM_SHUFFLE(1, 0, 3, 2)));
  return _mm512_add_epi64(_mm512_mul_epu32(keyed, high), _mm512_add_epi64(acc, swapped));
}

template <Store store>
PC_AVX512 void blocks_avx512(uint64_t acc_out[8], std::byte* dest, const std::byte* source,
                             size_t stripes) {
  const unsigned char* secret = XXH3_kSecret;
  const __m512i prime = _mm512_set1_epi32(static_cast<int>(XXH_PRIME32_1));
  __m512i acc = _mm512_loadu_si512(acc_out);
  for (; stripes >= kStripesPerBlock; stripes -= kStripesPerBlock) {
#pragma GCC unroll 16
    for (size_t i = 0; i < kStripesPerBlock; ++i)
      acc = stripe_avx512<store>(acc, dest + i * kStripeBytes, source + i * kStripeBytes,
                                 secret + i * kKeyStepBytes);
    const __m512i keyed = _mm512_xor_si512(_mm512_xor_si512(acc, _mm512_srli_epi64(acc, 47)),
                                           _mm512_loadu_si512(secret + kScrambleKey));
    const __m512i low = _mm512_mul_epu32(keyed, prime);
    const __m512i high = _mm512_mul_epu32(_mm512_srli_epi64(keyed, 32), prime);
    acc = _mm512_add_epi64(low, _mm512_slli_epi64(high, 32));
    source += kStripesPerBlock * kStripeBytes;
    dest += kStripesPerBlock * kStripeBytes;
  }
  for (size_t i = 0; i < stripes; ++i)
    acc = stripe_avx512<store>(acc, dest + i * kStripeBytes, source + i * kStripeBytes,
                               secret + i * kKeyStepBytes);
  _mm512_storeu_si512(acc_out, acc);
}

// --- AVX2: two registers -------------------------------------------------------------------

template <Store store>
PC_INLINE PC_AVX2 __m256i half_avx2(__m256i acc, std::byte* dest, const std::byte* source,
                                    const unsigned char* key) {
  const __m256i value = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
  if constexpr (store == Store::streamed)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(dest), value);
  if constexpr (store == Store::cached)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dest), value);
  const __m256i keyed =
      _mm256_xor_si256(value, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(key)));
  const __m256i high = _mm256_srli_epi64(keyed, 32);
  const __m256i swapped = _mm256_shuffle_epi32(value, _MM_SHUFFLE(1, 0, 3, 2));
  return _mm256_add_epi64(_mm256_mul_epu32(keyed, high), _mm256_add_epi64(acc, swapped));
}

PC_INLINE PC_AVX2 __m256i scramble_avx2(__m256i acc, const unsigned char* key) {
  const __m256i prime = _mm256_set1_epi32(static_cast<int>(XXH_PRIME32_1));
  const __m256i keyed = _mm256_xor_si256(_mm256_xor_si256(acc, _mm256_srli_epi64(acc, 47)),
                                         _mm256_loadu_si256(reinterpret_cast<const __m256i*>(key)));
  const __m256i low = _mm256_mul_epu32(keyed, prime);
  const __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(keyed, 32), prime);
  return _mm256_add_epi64(low, _mm256_slli_epi64(high, 32));
}

template <Store store>
PC_AVX2 void blocks_avx2(uint64_t acc_out[8], std::byte* dest, const std::byte* source,
                         size_t stripes) {
  const unsigned char* secret = XXH3_kSecret;
  auto* out = reinterpret_cast<__m256i*>(acc_out);
  __m256i acc0 = _mm256_loadu_si256(out);
  __m256i acc1 = _mm256_loadu_si256(out + 1);
  size_t in_block = 0;
  for (size_t i = 0; i < stripes; ++i) {
    const std::byte* from = source + i * kStripeBytes;
    std::byte* to = dest + i * kStripeBytes;
    const unsigned char* key = secret + in_block * kKeyStepBytes;
    acc0 = half_avx2<store>(acc0, to, from, key);
    acc1 = half_avx2<store>(acc1, to + 32, from + 32, key + 32);
    if (++in_block == kStripesPerBlock) {
      acc0 = scramble_avx2(acc0, secret + kScrambleKey);
      acc1 = scramble_avx2(acc1, secret + kScrambleKey + 32);
      in_block = 0;
    }
  }
  _mm256_storeu_si256(out, acc0);
  _mm256_storeu_si256(out + 1, acc1);
}

// --- SSE2: four registers; every x86-64 processor has it -------------------------------------

template <Store store>
PC_INLINE __m128i quarter_sse2(__m128i acc, std::byte* dest, const std::byte* source,
                               const unsigned char* key) {
  const __m128i value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
  if constexpr (store == Store::streamed) _mm_stream_si128(reinterpret_cast<__m128i*>(dest), value);
  if constexpr (store == Store::cached) _mm_storeu_si128(reinterpret_cast<__m128i*>(dest), value);
  const __m128i keyed =
      _mm_xor_si128(value, _mm_loadu_si128(reinterpret_cast<const __m128i*>(key)));
  const __m128i high = _mm_srli_epi64(keyed, 32);
  const __m128i swapped = _mm_shuffle_epi32(value, _MM_SHUFFLE(1, 0, 3, 2));
  return _mm_add_epi64(_mm_mul_epu32(keyed, high), _mm_add_epi64(acc, swapped));
}

PC_INLINE __m128i scramble_sse2(__m128i acc, const unsigned char* key) {
  const __m128i prime = _mm_set1_epi32(static_cast<int>(XXH_PRIME32_1));
  const __m128i keyed = _mm_xor_si128(_mm_xor_si128(acc, _mm_srli_epi64(acc, 47)),
                                      _mm_loadu_si128(reinterpret_cast<const __m128i*>(key)));
  const __m128i low = _mm_mul_epu32(keyed, prime);
  const __m128i high = _mm_mul_epu32(_mm_srli_epi64(keyed, 32), prime);
  return _mm_add_epi64(low, _mm_slli_epi64(high, 32));
}

template <Store store>
void blocks_sse2(uint64_t acc_out[8], std::byte* dest, const std::byte* source, size_t stripes) {
  const unsigned char* secret = XXH3_kSecret;
  auto* out = reinterpret_cast<__m128i*>(acc_out);
  __m128i acc[4];
  for (size_t lane = 0; lane < 4; ++lane) acc[lane] = _mm_loadu_si128(out + lane);
  size_t in_block = 0;
  for (size_t i = 0; i < stripes; ++i) {
    for (size_t lane = 0; lane < 4; ++lane) {
      const size_t at = i * kStripeBytes + lane * 16;
      acc[lane] = quarter_sse2<store>(acc[lane], dest + at, source + at,
                                      secret + in_block * kKeyStepBytes + lane * 16);
    }
    if (++in_block == kStripesPerBlock) {
      for (size_t lane = 0; lane < 4; ++lane)
        acc[lane] = scramble_sse2(acc[lane], secret + kScrambleKey + lane * 16);
      in_block = 0;
    }
  }
  for (size_t lane = 0; lane < 4; ++lane) _mm_storeu_si128(out + lane, acc[lane]);
}

// --- the choice ------------------------------------------------------------------------------

using Blocks = void (*)(uint64_t*, std::byte*, const std::byte*, size_t);

template <Blocks none, Blocks cached, Blocks streamed>
void with_store(uint64_t acc[8], std::byte* dest, const std::byte* source, size_t stripes) {
  // `none` stores nothing, but advances its destination like the others.
  if (dest == nullptr) return none(acc, const_cast<std::byte*>(source), source, stripes);
  const bool aligned = reinterpret_cast<uintptr_t>(dest) % kStripeBytes == 0;
  return (aligned ? streamed : cached)(acc, dest, source, stripes);
}

constexpr CopyKernel kAvx512{"avx512",
                             with_store<blocks_avx512<Store::none>, blocks_avx512<Store::cached>,
                                        blocks_avx512<Store::streamed>>};
constexpr CopyKernel kAvx2{
    "avx2",
    with_store<blocks_avx2<Store::none>, blocks_avx2<Store::cached>, blocks_avx2<Store::streamed>>};
constexpr CopyKernel kSse2{
    "sse2",
    with_store<blocks_sse2<Store::none>, blocks_sse2<Store::cached>, blocks_sse2<Store::streamed>>};

}  // namespace

std::span<const CopyKernel> copy_kernels() {
  // Best first, so that the kernels without support are at the beginning.
  static constexpr CopyKernel kAll[] = {kAvx512, kAvx2, kSse2};
  const bool has_avx512 = __builtin_cpu_supports("avx512f"),
             has_avx2 = __builtin_cpu_supports("avx2");
  return std::span(kAll).subspan(has_avx512 ? 0 : has_avx2 ? 1 : 2);
}

void fence_copied_bytes() {
  // Nothing else orders streamed stores. A release store or a mutex that publishes these bytes
  // must not overtake them.
  _mm_sfence();
}

}  // namespace peercached

#endif  // __x86_64__
