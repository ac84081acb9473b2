/* A codec's speed and size on a real gradient, by the lane that will use it: error feedback
 * included. */
#include "select/survey.h"

#include "base/mem.h"
#include "base/stats.h"
#include "comm/lane_parts.h"
#include "mpi/wait.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_REPEATS = 15 };
#define ENOUGH_S 30e-3 /* of timings of one kind */
#define SLOW_S   0.2   /* a pass so long is not repeated */

typedef struct bout {
    gw_lane *lane;
    uint64_t ticket;
    const float *gradient;
    size_t n, part;
    int parts;
    float *v; /* scratch arena */
    char *wire, *other;
    size_t room; /* of a part's encoding */
    size_t *len; /* of each part's */
} bout;

/* One coding of all parts. */
static gw_err survey_pass(bout *b, gw_coding kind) {
    const gw_codec *codec = b->lane->codec;
    for (int i = 0; i < b->parts; i++) {
        char *wire = b->wire + (size_t)i * b->room;
        gw_span s = gw_span_part((gw_span){0, b->n}, i, b->parts);
        switch (kind) {
        case GW_CODING_ENCODE:
        case GW_CODING_ADOPT:
            GW_TRY(gw_lane_encode(b->lane, b->ticket, b->v, s,
                                  kind == GW_CODING_ADOPT ? GW_ENCODE_ADOPT | GW_ENCODE_ALONE : 0,
                                  wire, b->room, &b->len[i]));
            break;
        case GW_CODING_ADD:
        case GW_CODING_SET:
            GW_TRY(gw_lane_decode(b->lane, wire, b->len[i], b->v, s, kind == GW_CODING_ADD));
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
static gw_err survey_time_kind(bout *b, gw_coding kind, double *out) {
    double run[MOST_REPEATS], spent = 0;
    int n = -1;
    for (; n < 1 || (n < MOST_REPEATS && spent < ENOUGH_S); n++) {
        memcpy(b->v, b->gradient, b->n * sizeof *b->v);
        b->ticket++;
        double start = MPI_Wtime();
        GW_TRY(survey_pass(b, kind));
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

static gw_err survey_one_part(bout *b, gw_codec_price *p) {
    size_t part = p->part > 0 && p->part < b->n ? p->part : b->n;
    b->parts = (int)((b->n + part - 1) / part);
    b->room = gw_codec_bound(b->lane->codec, b->n / (size_t)b->parts + 1);
    GW_TRY(gw_alloc(&b->wire, b->room, (size_t)b->parts));
    GW_TRY(gw_alloc(&b->other, b->room, 1));
    GW_TRY(gw_alloc(&b->len, (size_t)b->parts, sizeof *b->len));
    for (gw_coding k = 0; k < GW_CODINGS; k++) {
        p->price[k] = 0;
        if (k != GW_CODING_SUM || gw_codec_summable(b->lane->codec))
            GW_TRY(survey_time_kind(b, k, &p->price[k]));
    }
    size_t bytes = 0;
    for (int i = 0; i < b->parts; i++)
        bytes += b->len[i];
    p->bytes = (double)bytes / (double)b->n;
    return GW_OK;
}

static gw_err survey_measure(bout *b, gw_codec_price *price, int n_prices) {
    GW_TRY(gw_alloc(&b->v, b->n, sizeof *b->v));
    gw_err e = GW_OK;
    for (int i = 0; i < n_prices && e == GW_OK; i++) {
        e = survey_one_part(b, &price[i]);
        free(b->wire);
        free(b->other);
        free(b->len);
        b->wire = b->other = NULL;
        b->len = NULL;
    }
    return e;
}

gw_err gw_survey_codec(gw_codec *codec, bool feedback, const float *gradient, size_t n,
                       gw_codec_price *price, int n_prices, MPI_Comm comm) {
    /* a ticket beyond any warm-up: what the run is like for long */
    bout b = {.gradient = gradient, .n = n, .ticket = (uint64_t)1 << 40};
    gw_lane_setup setup = {.codec = codec, .n = n, .feedback = feedback};
    int ranks;
    GW_MPI(MPI_Comm_size(comm, &ranks));
    GW_TRY(gw_barrier(comm)); /* memory is shared: all at the same time, as in a step */
    gw_err e = gw_lane_open(&b.lane, MPI_COMM_SELF, &setup);
    GW_THEN(e, gw_codec_join(codec, ranks));
    if (e == GW_OK)
        b.lane->size = ranks; /* it draws as one of so many */
    GW_THEN(e, survey_measure(&b, price, n_prices));
    free(b.v);
    gw_lane_close(b.lane);
    GW_TRY(gw_agree(comm, e));
    for (int i = 0; i < n_prices; i++) {
        GW_TRY(gw_allreduce(MPI_IN_PLACE, price[i].price, GW_CODINGS, MPI_DOUBLE, MPI_MAX, comm));
        GW_TRY(gw_allreduce(MPI_IN_PLACE, &price[i].bytes, 1, MPI_DOUBLE, MPI_MAX, comm));
    }
    return GW_OK;
}
