#include "select/tally.h"

/* Whose bytes these are. */
extern const gw_codec_ops gw_codec_none;

static gw_tally tally;

/* What was encoded last: decoded at once into where it came from, it is adopted. */
static const void *last_out, *last_x;

static void tally_count(gw_coding kind, double calls, size_t n) {
    tally.calls[kind] += calls;
    tally.floats[kind] += calls * (double)n;
}

static gw_err tally_encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                           size_t cap, size_t *len) {
    last_out = out;
    last_x = x;
    tally_count(GW_CODING_ENCODE, 1, n);
    return gw_codec_none.encode(self, turn, x, n, out, cap, len);
}

static gw_err tally_decode(const void *self, const void *in, size_t len, float *y, size_t n,
                           gw_into into) {
    GW_TRY(gw_codec_none.decode(self, in, len, y, n, into));
    if (into == GW_INTO_SET && in == last_out && y == last_x) {
        tally_count(GW_CODING_ENCODE, -1, n);
        tally_count(GW_CODING_ADOPT, 1, n);
    } else {
        tally_count(into == GW_INTO_ADD ? GW_CODING_ADD : GW_CODING_SET, 1, n);
    }
    last_out = NULL;
    return GW_OK;
}

static gw_err tally_add(void *inout, const void *in, size_t len) {
    tally_count(GW_CODING_SUM, 1, len / sizeof(float));
    return gw_codec_none.add(inout, in, len);
}

static size_t tally_bound(const void *self, size_t n) {
    return gw_codec_none.bound(self, n);
}

#define COUNTING                                                                                   \
    .head = {GW_CODEC_ABI, "tally", "floats as they are, counted", NULL},                          \
    .caps = GW_CODEC_LOSSLESS | GW_CODEC_UNBIASED | GW_CODEC_FIXED, .bound = tally_bound,          \
    .encode = tally_encode, .decode = tally_decode

static const gw_codec_ops opaque = {COUNTING};
static const gw_codec_ops summable = {COUNTING, .add = tally_add, .unit_bytes = sizeof(float)};

void gw_tally_open(gw_codec *out, bool summed) {
    *out = (gw_codec){.ops = summed ? &summable : &opaque, .spec = "tally", .fixed = true};
    out->caps = out->ops->caps;
}

void gw_tally_reset(void) {
    tally = (gw_tally){0};
    last_out = last_x = NULL;
}

gw_tally gw_tally_read(void) {
    return tally;
}
