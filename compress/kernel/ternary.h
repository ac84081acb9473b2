/** Kernels of the ternary codec: random codes -1, 0, 1, five to a byte, and back. */
#ifndef GW_COMPRESS_KERNEL_TERNARY_H
#define GW_COMPRESS_KERNEL_TERNARY_H

#include "compress/kernel/bucket.h"

enum {
    GW_TERNARY_RUNS = 5,                           /* trits a byte: 3^5 = 243 */
    GW_TERNARY_GRAIN = GW_TERNARY_RUNS * GW_BLOCK, /* a bucket is a multiple of this */
    GW_TERNARY_MOST = 32 * GW_TERNARY_GRAIN,       /* floats of the largest bucket */
    GW_TERNARY_TOP = 242                           /* the largest byte */
};

/** Pack five runs of codes into bytes: byte j is the base-3 number whose digits are the codes j,
 *  run + j, .., 4 run + j, each plus 1. */
static inline void gw_ternary_pack(const int8_t *codes, size_t run, unsigned char *bytes) {
    for (size_t j = 0; j < run; j++) {
        int b = codes[j];
        for (size_t r = 1; r < GW_TERNARY_RUNS; r++)
            b = 3 * b + codes[r * run + j];
        bytes[j] = (unsigned char)(b + GW_TERNARY_TOP / 2);
    }
}

/* b + ((b * MUL + ADD) >> SHIFT) is ceil(256 b / 243): a binary fraction so close to b / 243 that
 * each multiplication by three carries out the next digit. Found by trying all b. */
#define GW_TERNARY_UP_MUL   55
#define GW_TERNARY_UP_ADD   1010
#define GW_TERNARY_UP_SHIFT 10

/** Unpack bytes that are at most GW_TERNARY_TOP. */
static inline void gw_ternary_unpack(const unsigned char *bytes, size_t run, int8_t *codes) {
    for (size_t j = 0; j < run; j++) {
        unsigned b = bytes[j];
        b += (b * GW_TERNARY_UP_MUL + GW_TERNARY_UP_ADD) >> GW_TERNARY_UP_SHIFT;
        for (size_t r = 0; r < GW_TERNARY_RUNS; r++) {
            b *= 3;
            codes[r * run + j] = (int8_t)((int)(b >> 8) - 1);
            b &= 0xff;
        }
    }
}

/** Decoding by hand is 1.4 times as fast with AVX-512. */
extern const gw_bucket_kernels gw_ternary_portable, gw_ternary_avx2, gw_ternary_avx512;

#endif
