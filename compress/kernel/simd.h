/** Shared by the codecs' kernels: which instruction set runs, and how a long span is split.
 *
 *  A kernel is a loop over a vector type (NAME_loop.h), which level_portable.c, level_avx2.c and
 *  level_avx512.c compile for their instructions: see vec.h. One by hand for an instruction set is
 *  at least 1.15 times as fast; a comment where it is declared says by how much (gcc 12, AMD Zen 5,
 *  4 KiB to 16 MiB of floats). All levels give the same bytes, so ranks on different CPUs agree.
 *  Kernels work on whole blocks of GW_BLOCK floats; the ragged end of a span goes through a
 *  zero-padded local block, so no kernel has tail code. */
#ifndef GW_COMPRESS_KERNEL_SIMD_H
#define GW_COMPRESS_KERNEL_SIMD_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GW_BLOCK = 64 };

#if defined(__x86_64__)
#define GW_X86         1
#define GW_TARGET_AVX2 __attribute__((target("avx2,f16c,bmi,popcnt")))
#define GW_TARGET_AVX512                                                                           \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,bmi,bmi2,popcnt")))
/** Kernels by level: GW_SIMD_TABLE(gw_half) names gw_half_portable and the others. */
#define GW_SIMD_TABLE(kernels)                                                                     \
    { &kernels##_portable, &kernels##_avx2, &kernels##_avx512 }
#else
#define GW_SIMD_TABLE(kernels)                                                                     \
    { &kernels##_portable }
#endif

typedef enum gw_simd { GW_SIMD_PORTABLE, GW_SIMD_AVX2, GW_SIMD_AVX512, GW_SIMD_LEVELS } gw_simd;

/** The best level of this CPU, or the one that the environment's GW_SIMD=portable|avx2|avx512 asks
 *  for. GW_ERR_USAGE: no such level, or this CPU lacks it. */
gw_err gw_simd_pick(gw_simd *level);

/** "portable", "avx2", "avx512". */
const char *gw_simd_name(gw_simd level);

/** Call part(ctx, lo, hi) for ranges that tile [0, n), each starting at a multiple of `grain`: one
 *  range a thread if the span is long and OpenMP has several threads, else one range. */
void gw_simd_split(size_t n, size_t grain, void (*part)(void *ctx, size_t lo, size_t hi),
                   void *ctx);

/* Unaligned little-endian integers, as on the wire. */
typedef uint16_t gw_u16u __attribute__((aligned(1), may_alias));
typedef uint32_t gw_u32u __attribute__((aligned(1), may_alias));
typedef uint64_t gw_u64u __attribute__((aligned(1), may_alias));

static inline uint16_t gw_le16(uint16_t v) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap16(v);
#endif
    return v;
}

static inline uint32_t gw_le32(uint32_t v) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap32(v);
#endif
    return v;
}

static inline uint32_t gw_float_bits(float f) {
    union {
        float f;
        uint32_t u;
    } v = {.f = f};
    return v.u;
}

static inline float gw_float_of(uint32_t bits) {
    union {
        uint32_t u;
        float f;
    } v = {.u = bits};
    return v.f;
}

#endif
