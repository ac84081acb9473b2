/* Frames: their golden bytes, that no damage passes, and what they do to a codec's promises. */
#include "codec_cases.h"

#include "compress/frame.h"

enum { N = 40 };

static gw_codec must_frame(const char *spec) {
    gw_codec c = must_open(spec);
    gw_codec_frame(&c);
    return c;
}

/* crc32 of the other fields and the payload, as any CRC-32 tool computes it of these bytes. */
static void golden_frame(void **state) {
    static const unsigned char want[] = {'G',  'W',  'F',  'R',  1, 0, 0, 0, 0xef, 0xcd, 0xab, 0x89,
                                         0x46, 0x56, 0xbb, 0x67, 5, 0, 0, 0, 0,    0,    0,    0,
                                         3,    0,    0,    0,    0, 0, 0, 0, 'a',  'b',  'c'};
    unsigned char frame[GW_FRAME_BYTES + 3] = {0};
    memcpy(frame + GW_FRAME_BYTES, "abc", 3);
    gw_frame_seal(frame, 0x89abcdef, 5, 3);
    assert_memory_equal(frame, want, sizeof want);
    size_t len;
    assert_int_equal(gw_frame_check(frame, sizeof frame, "x", 0x89abcdef, 5, &len), GW_OK);
    assert_int_equal(len, 3);
}

static void golden_tags(void **state) {
    const struct {
        const char *spec;
        uint32_t tag;
    } want[] = {{"none", 0xd9a6a0ac}, {"qsgd:bits=4", 0xd983a3ed}, {"fp16+zlib", 0x19babfc3}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        gw_codec c = must_frame(want[i].spec);
        assert_int_equal(c.tag, want[i].tag);
        gw_codec_close(&c);
    }
}

static void same_tag(const char *one, const char *other, bool same) {
    gw_codec a = must_frame(one), b = must_frame(other);
    if ((a.tag == b.tag) != same)
        fail_msg("%s and %s: tags 0x%x and 0x%x", one, other, a.tag, b.tag);
    gw_codec_close(&a);
    gw_codec_close(&b);
}

/* However the options are written; but not whatever they are. */
static void tags_are_of_values(void **state) {
    same_tag("qsgd", "qsgd:bucket=512,bits=8", true);
    same_tag("topk:ratio=0.1", "topk:ratio=0.10,warmup=00", true);
    same_tag("topk:ratio=1e-1+zlib:level=5", "topk:ratio=.1+zlib:level=05", true);
    same_tag("threshold:value=0", "threshold:value=-0.0", true);
    same_tag("qsgd:rounding=nearest", "qsgd:rounding=nearest,bits=08", true);
    same_tag("topk:ratio=0.1", "topk:ratio=0.1000000001", false);
    same_tag("topk:ratio=0.1", "randomk:ratio=0.1", false);
    same_tag("qsgd:bits=4", "qsgd:bits=5", false);
    same_tag("qsgd:rounding=nearest", "qsgd", false);
}

static void promises_in_a_frame(const char *spec) {
    gw_codec bare = must_open(spec), c = must_frame(spec);
    float x[1100], y[1100], z[1100];
    unsigned lost = GW_CODEC_IDENTITY | GW_CODEC_LINEAR;
    assert_int_equal(c.caps, bare.caps & ~lost);
    assert_false(gw_codec_summable(&c));
    assert_false(gw_codec_agrees(&c));
    fill_gradient(2, x, 1100);
    for (size_t n = 0; n <= 1100; n += 1 + n / 3) {
        size_t inner = gw_codec_bound(&bare, n), len, plain;
        assert_int_equal(gw_codec_bound(&c, n), inner ? inner + GW_FRAME_BYTES : 0);
        unsigned char *a = encoded(&c, 3, x, n, &len), *b = encoded(&bare, 3, x, n, &plain);
        assert_int_equal(len, inner ? plain + GW_FRAME_BYTES : 0);
        if (len)
            assert_memory_equal(a + GW_FRAME_BYTES, b, plain);
        assert_int_equal(gw_codec_decode(&c, a, len, y, n, GW_INTO_SET), GW_OK);
        assert_int_equal(gw_codec_decode(&bare, b, plain, z, n, GW_INTO_SET), GW_OK);
        assert_memory_equal(y, z, n * sizeof *y);
        free(a);
        free(b);
    }
    gw_codec_close(&bare);
    gw_codec_close(&c);
}

static void promises(void **state) {
    each_spec(promises_in_a_frame);
}

/* Every bit flipped, every length but its own, every other count, zeros in its place. */
static void damage(const char *spec) {
    gw_codec c = must_frame(spec);
    float x[N];
    size_t len;
    fill_gradient(2, x, N);
    unsigned char *wire = encoded(&c, 3, x, N, &len);
    for (size_t bit = 0; bit < 8 * len; bit++) {
        wire[bit / 8] ^= (unsigned char)(1 << bit % 8);
        refuse(&c, wire, len, N);
        if (!strstr(gw_err_text(), c.spec) || !strstr(gw_err_text(), "expected"))
            fail_msg("%s: bit %zu: '%s'", spec, bit, gw_err_text());
        wire[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    for (size_t cut = 0; cut < len; cut++)
        refuse(&c, wire, cut, N);
    unsigned char *longer = must_alloc(len + 1);
    memcpy(longer, wire, len);
    refuse(&c, longer, len + 1, N);
    refuse(&c, wire, len, N - 1);
    refuse(&c, wire, len, N + 1);
    memset(longer, 0, len);
    refuse(&c, longer, len, N);
    free(longer);
    free(wire);
    gw_codec_close(&c);
}

static void damage_is_seen(void **state) {
    each_spec(damage);
}

static void says(const gw_codec *c, const unsigned char *wire, size_t len, const char *text) {
    float y[N];
    assert_int_equal(gw_codec_decode(c, wire, len, y, N, GW_INTO_SET), GW_ERR_CORRUPT);
    assert_message(text);
}

static void messages(void **state) {
    gw_codec c = must_frame("qsgd:bits=4"), other = must_frame("qsgd:bits=8");
    float x[N];
    size_t len, foreign;
    fill_gradient(2, x, N);
    unsigned char *wire = encoded(&c, 3, x, N, &len), *strange = encoded(&other, 3, x, N, &foreign);
    says(&c, strange, len, "codec qsgd:bits=4: a frame's codec tag is 0x");
    says(&c, wire, 31, "a frame of 31 bytes, expected at least 32");
    says(&c, wire, len - 1, "length is 0x18, expected 0x17");
    wire[4] = 2;
    says(&c, wire, len, "version is 0x2, expected 0x1");
    wire[4] = 1;
    wire[len - 1] ^= 1;
    says(&c, wire, len, "checksum is 0x");
    wire[0] = 'g';
    says(&c, wire, len, "magic is 0x52465767, expected 0x52465747");
    free(wire);
    free(strange);
    gw_codec_close(&c);
    gw_codec_close(&other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_frame),       cmocka_unit_test(golden_tags),
        cmocka_unit_test(tags_are_of_values), cmocka_unit_test(promises),
        cmocka_unit_test(damage_is_seen),     cmocka_unit_test(messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
