/* An encoder codes a lane's messages: see comm/encoder.h. */
#include "comm/encoder.h"

#include "base/mem.h"
#include "base/probe.h"
#include "base/rng.h"
#include "compress/feedback.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

gw_err gw_encoder_open(gw_encoder *e, const gw_codec *codec, bool feedback) {
    gw_encoders *of = e->of;
    bool keeps = feedback && !(codec->caps & GW_CODEC_LOSSLESS);
    e->codec = codec;
    if (keeps && !of->store) {
        GW_TRY(gw_alloc(&of->store, of->n, sizeof *of->store));
        of->decay = 1;
    }
    e->residual = keeps ? of->store : NULL;
    return GW_OK;
}

void gw_encoders_close(gw_encoders *of) {
    free(of->store);
}

float *gw_encoder_fed(const gw_encoder *e) {
    return e->of->fed ? e->residual : NULL;
}

/* ---- encoding ---- */

/* Return the residual of s as the encoding that comes now finds it; NULL: none. */
static float *encoder_residual(const gw_encoder *e, gw_span s) {
    float decay = e->of->decay;
    float *kept = e->residual ? e->residual + s.off : NULL;
    for (size_t i = 0; kept && decay != 1 && i < s.n; i++)
        kept[i] *= decay;
    return kept;
}

static gw_turn encoder_turn(const gw_encoder *e, uint64_t ticket, gw_span s, bool alone) {
    uint64_t rank = e->codec->caps & GW_CODEC_SHARED ? 0 : (uint64_t)e->rank;
    uint64_t exchange = gw_rng_key(e->of->seed, ticket);
    return (gw_turn){.key = gw_rng_key(gw_rng_key(exchange, rank), s.off),
                     .step = ticket,
                     .common = gw_rng_key(gw_rng_key(exchange, UINT64_MAX), s.off),
                     .rank = e->rank,
                     .ranks = alone ? 1 : e->ranks};
}

void gw_encoder_measure(gw_encoder *e, float *base, gw_span s, void *out) {
    gw_work_enter(GW_PHASE_ENCODE);
    float *v = base + s.off, *kept = encoder_residual(e, s);
    if (kept)
        gw_feedback_add(kept, v, s.n);
    gw_codec_measure(e->codec, kept ? kept : v, s.n, out);
    gw_work_leave();
}

/* `floats` were coded; under virtual time that takes what the codec's price says. */
static void encoder_spend(const gw_encoder *e, gw_coding kind, size_t floats) {
    const gw_codec_price *p = e->codec->price;
    gw_coded_tell(kind, floats);
    if (gw_probe_spend && p)
        gw_probe_spend(p->call_s[kind] + p->float_s[kind] * (double)floats);
}

/* An encoding of s ended with `result`. */
static gw_err encoder_encoded(gw_encoder *e, gw_span s, bool adopt, const size_t *len,
                              gw_err result) {
    const gw_encoders *of = e->of;
    for (int i = 0; result == GW_OK && of->coded && i < of->n_layers; i++) {
        size_t n = gw_span_common(of->layers[i], s).n;
        of->coded[i].floats += n;
        of->coded[i].bytes += n == s.n ? *len : (uint64_t)((double)*len * (double)n / (double)s.n);
    }
    if (result == GW_OK && e->codings) {
        e->codings->floats += s.n;
        e->codings->bytes += *len;
    }
    encoder_spend(e, adopt ? GW_CODING_ADOPT : GW_CODING_ENCODE, s.n);
    gw_phase_leave();
    return result;
}

gw_err gw_encoder_encode(gw_encoder *e, uint64_t ticket, float *base, gw_span s, unsigned how,
                         void *out, size_t cap, size_t *len) {
    gw_phase_enter(GW_PHASE_ENCODE);
    float *v = base + s.off, *kept = encoder_residual(e, s), *u = e->velocity;
    const gw_codec *c = e->codec;
    const gw_phantom *phantom = e->of->phantom;
    bool adopt = how & GW_ENCODE_ADOPT;
    gw_turn turn = encoder_turn(e, ticket, s, how & GW_ENCODE_ALONE);
    gw_err result = GW_OK;
    if (phantom) {
        size_t most = gw_codec_bound(c, s.n), some = (size_t)(phantom->bytes * (double)s.n);
        *len = !c->fixed && some > 0 && some < most ? some : most;
    } else if (!kept) {
        result = gw_codec_encode(c, turn, v, s.n, out, cap, len);
        if (adopt)
            GW_THEN(result, gw_codec_decode(c, out, *len, v, s.n, GW_INTO_SET));
    } else {
        result = e->of->fed ? gw_feedback_encode_sum(c, turn, v, kept, s.n, adopt, out, cap, len)
                            : gw_feedback_encode(c, turn, v, kept, s.n, adopt, out, cap, len);
        if (u)
            GW_THEN(result, gw_codec_decode(c, out, *len, u + s.off, s.n, GW_INTO_CLEAR));
    }
    return encoder_encoded(e, s, adopt, len, result);
}

gw_err gw_encoder_encode_agreed(gw_encoder *e, uint64_t ticket, float *base, gw_span s, bool adopt,
                                void *out, size_t cap, size_t *len) {
    gw_phase_enter(GW_PHASE_ENCODE);
    float *v = base + s.off, *kept = e->residual; /* gw_encoder_measure has added v to it */
    gw_turn turn = encoder_turn(e, ticket, s, false);
    gw_err result =
        kept ? gw_feedback_encode_agreed(e->codec, turn, v, kept + s.off, s.n, out, cap, len)
             : gw_codec_encode_agreed(e->codec, turn, v, s.n, out, cap, len);
    if (!kept && adopt)
        GW_THEN(result, gw_codec_decode(e->codec, out, *len, v, s.n, GW_INTO_SET));
    return encoder_encoded(e, s, adopt, len, result);
}

/* ---- decoding ---- */

/* A decoding of s ended with `result`. The message names the floats that were damaged, and their
 * layers where these are known. */
static gw_err encoder_checked(gw_encoder *e, gw_span s, gw_err result) {
    gw_encoders *of = e->of;
    char layers[64] = "", count[64] = "";
    int first = -1, last = -1;
    if (e->codec->framed && s.n > 0)
        of->frames++;
    if (result != GW_ERR_CORRUPT)
        return result;
    for (int i = 0; i < of->n_layers; i++)
        if (gw_span_overlap(of->layers[i], s)) {
            first = first < 0 ? i : first;
            last = i;
        }
    if (first >= 0 && first == last)
        snprintf(layers, sizeof layers, "layer %d, ", first);
    else if (first >= 0)
        snprintf(layers, sizeof layers, "layers %d to %d, ", first, last);
    if (of->frames > 0)
        snprintf(count, sizeof count, "; frame %" PRIu64 " that this rank checked", of->frames);
    return gw_fail(result, "%s (%s, %sfloats %zu to %zu%s)", gw_err_text(),
                   of->name ? of->name : "unnamed lane", layers, s.off, gw_span_end(s) - 1, count);
}

gw_err gw_encoder_decode(gw_encoder *e, const void *in, size_t len, float *base, gw_span s,
                         bool add) {
    gw_phase_enter(GW_PHASE_DECODE);
    gw_err result = GW_OK;
    if (!e->of->phantom)
        result =
            gw_codec_decode(e->codec, in, len, base + s.off, s.n, add ? GW_INTO_ADD : GW_INTO_SET);
    result = encoder_checked(e, s, result);
    encoder_spend(e, add ? GW_CODING_ADD : GW_CODING_SET, s.n);
    gw_phase_leave();
    return result;
}

gw_err gw_encoder_list(gw_encoder *e, const void *in, size_t len, gw_span s, gw_elements *out) {
    gw_work_enter(GW_PHASE_DECODE);
    gw_err result = encoder_checked(e, s, gw_codec_list(e->codec, in, len, s.n, out));
    gw_work_leave();
    return result;
}

gw_err gw_encoders_state(gw_encoders *of, gw_io *io) {
    GW_TRY(gw_io_alike(io, "ticket", &of->ticket, sizeof of->ticket));
    return of->store ? gw_io_field(io, "residual", of->store, of->n * sizeof(float)) : GW_OK;
}
