/** Counter-based random numbers: a draw is a pure function of (key, counter), so any rank or
 *  thread can make any draw in any order. The mixer is SplitMix64's finalizer (Steele, Lea,
 *  Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014). */
#ifndef GW_BASE_RNG_H
#define GW_BASE_RNG_H

#include <stdint.h>

static inline uint64_t gw_rng_mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/** Return 64 uniform bits, number `ctr` of stream `key`. */
static inline uint64_t gw_rng_u64(uint64_t key, uint64_t ctr) {
    return gw_rng_mix(gw_rng_mix(key) + (ctr + 1) * 0x9e3779b97f4a7c15u);
}

/** Make a new stream key from a key and a salt: keys of keys give independent streams. */
static inline uint64_t gw_rng_key(uint64_t key, uint64_t salt) {
    return gw_rng_mix(gw_rng_u64(key, salt) ^ 0xd1b54a32d192ed03u);
}

/** Uniform in [0, 1), 53 bits. */
static inline double gw_rng_unit(uint64_t key, uint64_t ctr) {
    return (double)(gw_rng_u64(key, ctr) >> 11) * 0x1p-53;
}

/** Standard normal (Box-Muller), one value per counter. */
double gw_rng_normal(uint64_t key, uint64_t ctr);

/** Shuffle idx[0..n) uniformly (Fisher-Yates); a pure function of key and n. */
void gw_rng_shuffle(uint64_t key, uint32_t *idx, uint32_t n);

#endif
