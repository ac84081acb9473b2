/* Codes narrower than 8 bits in plain C: 8 codes of b bits are b bytes. */
enum { OCTET = 8 };

INLINE void qsgd_pack(unsigned bits, const int8_t *codes, unsigned char *out) {
    const uint64_t mask = (1u << bits) - 1;
    for (unsigned e = 0; e < GW_BLOCK; e += OCTET) {
        uint64_t packed = 0;
        for (unsigned k = 0; k < OCTET; k++)
            packed |= ((uint64_t)codes[e + k] & mask) << (bits * k);
        for (unsigned k = 0; k < bits; k++)
            *out++ = (unsigned char)(packed >> 8 * k);
    }
}

INLINE void qsgd_unpack(unsigned bits, const unsigned char *in, size_t n, float step, float *y,
                        int add) {
    for (size_t i = 0; i < n; i += OCTET, in += bits) {
        uint64_t packed = 0;
        for (unsigned k = 0; k < bits; k++)
            packed |= (uint64_t)in[k] << 8 * k;
        for (unsigned k = 0; k < OCTET; k++) {
            uint32_t raw = (uint32_t)(packed >> bits * k);
            int32_t code = (int32_t)(raw << (32 - bits)) >> (32 - bits); /* sign extension */
            float value = (float)code * step;
            y[i + k] = add ? y[i + k] + value : value;
        }
    }
}
