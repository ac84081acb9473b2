/* The loops over buckets of codecs whose encoding of a bucket needs its largest magnitude and
 * nothing else of what is around it. Wants the types `encoding` (with its x and bucket) and
 * `decoding`, and, all inline:
 *   void encode_bucket(encoding, bucket, n, top)   n floats, whose peak is `top`
 *   void decode_range(decoding, lo, hi, add)
 * and defines the three functions of a table of kernels. */

/* The peak of the next bucket is found before this one is written, so that its latency, and that
 * of its cache misses, hides behind the work. */
INLINE_LOOP void bucket_encode_range(const encoding *e, size_t lo, size_t hi) {
    size_t n = hi - lo < e->bucket ? hi - lo : e->bucket;
    uint32_t top = peak_of_bucket(e->x + lo, n);
    for (size_t bucket = lo / e->bucket; n; bucket++) {
        lo += n;
        size_t next = hi - lo < e->bucket ? hi - lo : e->bucket;
        uint32_t next_top = next ? peak_of_bucket(e->x + lo, next) : 0;
        encode_bucket(e, bucket, n, top);
        n = next, top = next_top;
    }
}

TARGET static void bucket_encode_part(void *ctx, size_t lo, size_t hi) {
    bucket_encode_range(ctx, lo, hi);
}

TARGET static void bucket_decode_part(void *ctx, size_t lo, size_t hi) {
    decode_range(ctx, lo, hi, 0);
}

TARGET static void bucket_decode_add_part(void *ctx, size_t lo, size_t hi) {
    decode_range(ctx, lo, hi, 1);
}
