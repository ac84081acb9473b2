#include "compress/feedback.h"

#include "base/clones.h"
#include "compress/kernel/simd.h"

typedef struct pair {
    float *y;
    const float *x;
} pair;

GW_CLONES static void feedback_feed_in(float *restrict y, const float *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

GW_CLONES static void feedback_take_off(float *restrict y, const float *restrict x, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] -= x[i];
}

static void feedback_add_part(void *ctx, size_t lo, size_t hi) {
    const pair *p = ctx;
    feedback_feed_in(p->y + lo, p->x + lo, hi - lo);
}

static void feedback_subtract_part(void *ctx, size_t lo, size_t hi) {
    const pair *p = ctx;
    feedback_take_off(p->y + lo, p->x + lo, hi - lo);
}

void gw_feedback_add(float *e, const float *x, size_t n) {
    gw_simd_split(n, GW_BLOCK, feedback_add_part, &(pair){e, x});
}

/* Turn e = x + residual into the new residual after encoding. x, as long as the span, is no longer
 * needed: it gets the encoded values, which an owner adopts. */
static gw_err feedback_leave_rest(const gw_codec *c, float *x, float *e, size_t n, const void *out,
                                  size_t len) {
    GW_TRY(gw_codec_decode(c, out, len, x, n, GW_INTO_SET));
    gw_simd_split(n, GW_BLOCK, feedback_subtract_part, &(pair){e, x});
    return GW_OK;
}

static gw_err feedback_adopted(const gw_codec *c, float *x, size_t n, bool adopt, const void *out,
                               size_t len) {
    return adopt ? gw_codec_decode(c, out, len, x, n, GW_INTO_SET) : GW_OK;
}

gw_err gw_feedback_encode_sum(const gw_codec *c, gw_turn turn, float *x, float *e, size_t n,
                              bool adopt, void *out, size_t cap, size_t *len) {
    GW_TRY(gw_codec_encode(c, turn, e, n, out, cap, len));
    GW_TRY(gw_codec_decode(c, out, *len, e, n, GW_INTO_SUBTRACT));
    return feedback_adopted(c, x, n, adopt, out, *len);
}

gw_err gw_feedback_encode(const gw_codec *c, gw_turn turn, float *x, float *e, size_t n, bool adopt,
                          void *out, size_t cap, size_t *len) {
    if (gw_codec_feeds_back(c)) {
        GW_TRY(gw_codec_encode_feedback(c, turn, x, e, n, out, cap, len));
        return feedback_adopted(c, x, n, adopt, out, *len);
    }
    gw_feedback_add(e, x, n);
    if (c->caps & GW_CODEC_SPARSE)
        return gw_feedback_encode_sum(c, turn, x, e, n, adopt, out, cap, len);
    GW_TRY(gw_codec_encode(c, turn, e, n, out, cap, len));
    return feedback_leave_rest(c, x, e, n, out, *len);
}

gw_err gw_feedback_encode_agreed(const gw_codec *c, gw_turn turn, float *x, float *e, size_t n,
                                 void *out, size_t cap, size_t *len) {
    GW_TRY(gw_codec_encode_agreed(c, turn, e, n, out, cap, len));
    return feedback_leave_rest(c, x, e, n, out, *len);
}
