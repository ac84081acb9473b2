#include "predict/codec.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/stats.h"
#include "comm/encoder.h"
#include "mpi/agree.h"
#include "mpi/wait.h"
#include "run/residuals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_REPEATS = 15, SHORT = 4 << 10, LONG = 256 << 10 /* floats of a call */ };
#define ENOUGH_S 15e-3 /* of timings of one kind in calls of one length */
#define SLOW_S   0.2   /* a pass so long is not repeated */

typedef struct bout {
    gw_encoder encoder;
    uint64_t ticket;
    const float *gradient;
    size_t n;
    int parts;
    float *v; /* scratch arena */
    char *wire, *other;
    size_t room; /* of a part's encoding */
    size_t *len; /* of each part's */
} bout;

/* One coding of all parts. */
static gw_err codec_pass(bout *b, gw_coding kind) {
    const gw_codec *codec = b->encoder.codec;
    for (int i = 0; i < b->parts; i++) {
        char *wire = b->wire + (size_t)i * b->room;
        gw_span s = gw_span_part((gw_span){0, b->n}, i, b->parts);
        switch (kind) {
        case GW_CODING_ENCODE:
        case GW_CODING_ADOPT:
            GW_TRY(
                gw_encoder_encode(&b->encoder, b->ticket, b->v, s,
                                  kind == GW_CODING_ADOPT ? GW_ENCODE_ADOPT | GW_ENCODE_ALONE : 0,
                                  wire, b->room, &b->len[i]));
            break;
        case GW_CODING_ADD:
        case GW_CODING_SET:
            GW_TRY(gw_encoder_decode(&b->encoder, wire, b->len[i], b->v, s, kind == GW_CODING_ADD));
            break;
        default: {
            size_t prefix = gw_codec_prefix(codec, s.n);
            GW_TRY(codec->ops->add(b->other + prefix, wire + prefix, b->len[i] - prefix));
        }
        }
    }
    return GW_OK;
}

/* Seconds a float: the typical one of some passes after one that is not counted. */
static gw_err codec_time_kind(bout *b, gw_coding kind, double *out) {
    double run[MOST_REPEATS], spent = 0;
    int n = -1;
    for (; n < 1 || (n < MOST_REPEATS && spent < ENOUGH_S); n++) {
        memcpy(b->v, b->gradient, b->n * sizeof *b->v);
        b->ticket++;
        double start = MPI_Wtime();
        GW_TRY(codec_pass(b, kind));
        double took = MPI_Wtime() - start;
        spent += took;
        run[n < 0 ? 0 : n] = took;
        if (took > SLOW_S) {
            n = 1;
            break;
        }
    }
    *out = gw_stats_typical(run, n) / (double)b->n;
    return GW_OK;
}

/* Coding in calls of about `part` floats: seconds per float, of each kind. */
static gw_err codec_time_calls(bout *b, size_t part, double each_s[GW_CODINGS], double *bytes) {
    b->parts = (int)((b->n + part - 1) / part);
    b->room = gw_codec_bound(b->encoder.codec, b->n / (size_t)b->parts + 1);
    GW_TRY(gw_alloc(&b->wire, b->room, (size_t)b->parts));
    GW_TRY(gw_alloc(&b->other, b->room, 1));
    GW_TRY(gw_alloc(&b->len, (size_t)b->parts, sizeof *b->len));
    for (gw_coding k = 0; k < GW_CODINGS; k++) {
        each_s[k] = 0;
        if (k != GW_CODING_SUM || gw_codec_summable(b->encoder.codec))
            GW_TRY(codec_time_kind(b, k, &each_s[k]));
    }
    size_t sum = 0;
    for (int i = 0; i < b->parts; i++)
        sum += b->len[i];
    *bytes = (double)sum / (double)b->n;
    return GW_OK;
}

/* A line through the times of short and of long calls. */
static gw_err codec_measure(bout *b, gw_codec_price *out) {
    size_t part[2] = {SHORT < b->n ? SHORT : b->n, LONG < b->n ? LONG : b->n};
    double each_s[2][GW_CODINGS], unused;
    GW_TRY(gw_alloc(&b->v, b->n, sizeof *b->v));
    gw_err e = GW_OK;
    for (int i = 0; i < 2 && e == GW_OK; i++) {
        e = codec_time_calls(b, part[i], each_s[i], i ? &out->bytes : &unused);
        free(b->wire);
        free(b->other);
        free(b->len);
        b->wire = b->other = NULL;
        b->len = NULL;
    }
    for (int k = 0; k < GW_CODINGS && e == GW_OK; k++) {
        double n[2] = {(double)part[0], (double)part[1]}, many = each_s[1][k] * n[1];
        double one_s = n[1] > n[0] ? (many - each_s[0][k] * n[0]) / (n[1] - n[0]) : each_s[1][k];
        out->float_s[k] = fmin(fmax(one_s, 0), each_s[1][k]);
        out->call_s[k] = many - out->float_s[k] * n[1];
    }
    return e;
}

gw_err gw_codec_like(const gw_codec *like, gw_codec *out) {
    GW_TRY(gw_codec_open(out, like->of));
    if (like->framed)
        gw_codec_frame(out);
    return GW_OK;
}

gw_err gw_codec_time_price(const gw_codec *like, const char *feedback, const float *gradient,
                           size_t n, int ranks, gw_codec_price *out) {
    /* a ticket beyond any warm-up: what the run is like for long */
    bout b = {.n = n < GW_CODEC_ENOUGH ? n : GW_CODEC_ENOUGH, .ticket = (uint64_t)1 << 40};
    float *drawn = NULL;
    gw_codec codec;
    *out = (gw_codec_price){0};
    GW_TRY(gw_codec_like(like, &codec));
    gw_encoders of = {.n = b.n};
    b.encoder = (gw_encoder){.of = &of, .ranks = ranks};
    gw_err e = gradient ? GW_OK : gw_alloc(&drawn, b.n, sizeof *drawn);
    for (size_t i = 0; drawn && i < b.n; i++)
        drawn[i] = (float)gw_rng_normal(0, i);
    b.gradient = gradient ? gradient : drawn;
    GW_THEN(e, gw_encoder_open(&b.encoder, &codec, gw_residuals_kept(feedback, codec.caps)));
    GW_THEN(e, gw_codec_join(&codec, ranks));
    GW_THEN(e, codec_measure(&b, out));
    free(drawn);
    free(b.v);
    gw_encoders_close(&of);
    gw_codec_close(&codec);
    return e;
}

gw_err gw_codec_measure_price(const gw_codec *like, const char *feedback, const float *gradient,
                              size_t n, gw_codec_price *out, MPI_Comm comm) {
    int ranks;
    GW_MPI(MPI_Comm_size(comm, &ranks));
    GW_TRY(gw_barrier(comm)); /* memory is shared: all at the same time, as in a step */
    GW_TRY(gw_agree(comm, gw_codec_time_price(like, feedback, gradient, n, ranks, out)));
    return gw_allreduce(MPI_IN_PLACE, out, (int)(sizeof *out / sizeof(double)), MPI_DOUBLE, MPI_MAX,
                        comm);
}

gw_codec_price gw_codec_price_scaled(const gw_codec_price *p, double cores) {
    gw_codec_price out = *p;
    for (gw_coding k = 0; k < GW_CODINGS; k++) {
        out.float_s[k] /= cores;
        out.call_s[k] /= cores;
    }
    return out;
}

json_t *gw_codec_price_json(const double of[GW_CODINGS]) {
    return gw_json_object("encode:f adopt:f add:f set:f sum:f", of[GW_CODING_ENCODE],
                          of[GW_CODING_ADOPT], of[GW_CODING_ADD], of[GW_CODING_SET],
                          of[GW_CODING_SUM]);
}
