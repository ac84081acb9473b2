/* The loops over buckets of codecs that need only a bucket's largest magnitude to encode it. The
 * including file defines the types `encoding` (with x and bucket) and `decoding`, and names, all
 * inline:
 *   void ENCODE_BUCKET(encoding, bucket, n, top)   n floats, whose peak is `top`
 *   void DECODE_RANGE(decoding, lo, hi, add)
 * These loops define the three functions of a table of kernels. */

/* Finds the next bucket's peak before it writes this one, to hide the latency of both the reduction
 * and the cache misses. */
INLINE_LOOP void bucket_encode_range(const encoding *e, size_t lo, size_t hi) {
    size_t n = hi - lo < e->bucket ? hi - lo : e->bucket;
    uint32_t top = peak_of_bucket(e->x + lo, n);
    for (size_t bucket = lo / e->bucket; n; bucket++) {
        lo += n;
        size_t next = hi - lo < e->bucket ? hi - lo : e->bucket;
        uint32_t next_top = next ? peak_of_bucket(e->x + lo, next) : 0;
        ENCODE_BUCKET(e, bucket, n, top);
        n = next, top = next_top;
    }
}

TARGET static void bucket_encode_part(void *ctx, size_t lo, size_t hi) {
    bucket_encode_range(ctx, lo, hi);
}

TARGET static void bucket_decode_part(void *ctx, size_t lo, size_t hi) {
    DECODE_RANGE(ctx, lo, hi, 0);
}

TARGET static void bucket_decode_add_part(void *ctx, size_t lo, size_t hi) {
    DECODE_RANGE(ctx, lo, hi, 1);
}
