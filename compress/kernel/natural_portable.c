/* natural in plain C: the reference; the other levels give the same bytes. */
#include "compress/kernel/natural.h"

#include "compress/kernel/chance_portable.h"

enum { FRACTION = GW_NATURAL_FRACTION };

/* mag as an integer whose code starts at bit 23; random bits added below may carry into it. Below
 * the window this is |x| divided by the window's smallest power. */
static inline uint32_t natural_place(uint32_t mag, uint32_t window) {
    uint32_t field = mag >> FRACTION, least = field ? field : 1;
    if (field > window || window == 0)
        return mag - (window << FRACTION);
    uint32_t whole = mag - ((least - 1) << FRACTION), down = window + 1 - least;
    return down < 32 ? whole >> down : 0;
}

static inline void natural_quantize(const float *x, size_t n, uint32_t window, uint64_t seed,
                                    uint32_t ctr, unsigned char *codes, gw_natural_reach reach) {
    (void)reach; /* the same code for all three */
    for (size_t i = 0; i < n; i += GW_BLOCK, ctr += GW_CHANCE_LANES) {
        uint32_t word[GW_BLOCK];
        chance_draw(seed, ctr, word);
        for (size_t l = 0; l < GW_BLOCK; l++) {
            uint32_t bits = gw_float_bits(x[i + l]);
            uint32_t drawn =
                natural_place(bits & 0x7fffffff, window) + (word[l] >> (32 - FRACTION));
            uint32_t code = drawn >> FRACTION;
            code = code < GW_NATURAL_CODES ? code : GW_NATURAL_CODES;
            codes[i + l] = (unsigned char)((bits >> 24 & 0x80) | code);
        }
    }
}

static inline uint32_t natural_least(const float *x, size_t n) {
    uint32_t low = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        uint32_t mag = gw_float_bits(x[i]) & 0x7fffffff;
        low = mag - 1 < low ? mag - 1 : low;
    }
    return low;
}

static inline void natural_decode(const unsigned char *codes, size_t n, uint32_t window, float *y,
                                  int add, int above) {
    for (size_t i = 0; i < n; i++) {
        uint32_t code = codes[i] & 0x7f, sign = (uint32_t)(codes[i] >> 7) << 31;
        uint32_t field = above && code ? window + code : code;
        float value = gw_float_of(sign | field << FRACTION);
        y[i] = add ? y[i] + value : value;
    }
}

#define TARGET
#include "compress/kernel/natural_loop.h"
GW_NATURAL_TABLE(portable);
