/* The places of a word's set bits, which are usually few. Needs TARGET and
 *   void pick_spread_many(word, first, at)   writes all of them, and up to GW_BLOCK words */

/* Branch prediction cannot guess their number, so it always writes four, and starts over if there
 * are more. */
TARGET static inline size_t pick_spread(uint64_t word, uint32_t first, uint32_t *at) {
    size_t found = (size_t)_mm_popcnt_u64(word);
    if (__builtin_expect(found > 4, 0)) {
        pick_spread_many(word, first, at);
        return found;
    }
    for (size_t i = 0; i < 4; i++) {
        at[i] = first + (uint32_t)_tzcnt_u64(word);
        word = _blsr_u64(word);
    }
    return found;
}
