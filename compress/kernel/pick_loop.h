/* The loops over blocks of 64 elements, included by each level that turns a block into a word of
 * one bit an element. Needs TARGET, with bmi and popcnt, and
 *   limit pick_limit(least)
 *   uint64_t pick_above(x, limit), uint64_t pick_add_above(x, e, limit)   the word
 *   size_t pick_spread(word, first, at)   writes the set bits' places, returns their number; may
 *                                         write up to GW_BLOCK words */

TARGET static size_t pick_span(const float *x, size_t n, uint32_t least, uint32_t first,
                               uint32_t *at) {
    const limit lim = pick_limit(least);
    size_t found = 0;
    for (size_t i = 0; i < n; i += GW_BLOCK)
        found += pick_spread(pick_above(x + i, lim), first + (uint32_t)i, at + found);
    return found;
}

TARGET static size_t pick_add_span(const float *x, float *e, size_t n, uint32_t least,
                                   uint32_t first, uint32_t *at) {
    const limit lim = pick_limit(least);
    size_t found = 0;
    for (size_t i = 0; i < n; i += GW_BLOCK)
        found += pick_spread(pick_add_above(x + i, e + i, lim), first + (uint32_t)i, at + found);
    return found;
}
