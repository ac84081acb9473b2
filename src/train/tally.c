#include "train/tally.h"

#include <string.h>

static gw_tally tally;

/* What was encoded last: decoded at once into where it came from, it is adopted. */
static const void *last_out, *last_x;

static void count(gw_coding kind, double calls, size_t n) {
    tally.calls[kind] += calls;
    tally.floats[kind] += calls * (double)n;
}

static size_t bound(const void *self, size_t n) {
    (void)self;
    return n * sizeof(float);
}

static gw_err encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                     size_t cap, size_t *len) {
    (void)self, (void)turn, (void)cap;
    memcpy(out, x, n * sizeof(float));
    *len = n * sizeof(float);
    last_out = out;
    last_x = x;
    count(GW_CODING_ENCODE, 1, n);
    return GW_OK;
}

static void add_floats(float *y, const char *in, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float v;
        memcpy(&v, in + i * sizeof v, sizeof v);
        y[i] += v;
    }
}

static gw_err decode(const void *self, const void *in, size_t len, float *y, size_t n,
                     gw_into into) {
    (void)self;
    if (len != n * sizeof(float))
        return gw_fail(GW_ERR_CORRUPT, "tally: %zu bytes for %zu floats", len, n);
    if (into == GW_INTO_ADD)
        add_floats(y, in, n);
    else
        memcpy(y, in, len);
    if (into == GW_INTO_SET && in == last_out && y == last_x) {
        count(GW_CODING_ENCODE, -1, n);
        count(GW_CODING_ADOPT, 1, n);
    } else {
        count(into == GW_INTO_ADD ? GW_CODING_ADD : GW_CODING_SET, 1, n);
    }
    last_out = NULL;
    return GW_OK;
}

static gw_err add(void *inout, const void *in, size_t len) {
    add_floats(inout, in, len / sizeof(float));
    count(GW_CODING_SUM, 1, len / sizeof(float));
    return GW_OK;
}

#define COUNTING                                                                                   \
    .head = {GW_CODEC_ABI, "tally", "floats as they are, counted", NULL},                          \
    .caps = GW_CODEC_LOSSLESS | GW_CODEC_UNBIASED | GW_CODEC_FIXED, .bound = bound,                \
    .encode = encode, .decode = decode

static const gw_codec_ops opaque = {COUNTING};
static const gw_codec_ops summable = {COUNTING, .add = add, .unit_bytes = sizeof(float)};

void gw_tally_open(gw_codec *out, bool summed) {
    *out = (gw_codec){.ops = summed ? &summable : &opaque, .spec = "tally"};
    out->caps = out->ops->caps;
}

void gw_tally_reset(void) {
    tally = (gw_tally){0};
    last_out = last_x = NULL;
}

gw_tally gw_tally_read(void) {
    return tally;
}
