#include "comm/lane.h"

#include "base/mem.h"
#include "base/probe.h"
#include "base/rng.h"

#include <stdlib.h>

gw_err gw_lane_open(gw_lane **out, MPI_Comm parent, const gw_codec *codec, size_t n, bool feedback,
                    uint64_t seed, bool yield) {
    gw_lane *lane = NULL;
    gw_err e = gw_alloc(&lane, 1, sizeof *lane);
    if (e == GW_OK && feedback && !(codec->ops->caps & GW_CODEC_LOSSLESS))
        e = gw_alloc(&lane->residual, n, sizeof(float));
    e = gw_agree(parent, e);
    if (e != GW_OK) {
        if (lane)
            free(lane->residual);
        free(lane);
        return e;
    }
    lane->codec = codec;
    lane->n = n;
    lane->seed = seed;
    lane->yield = yield;
    GW_MPI(MPI_Comm_dup(parent, &lane->comm));
    GW_MPI(MPI_Comm_set_errhandler(lane->comm, MPI_ERRORS_RETURN));
    GW_MPI(MPI_Comm_rank(lane->comm, &lane->rank));
    GW_MPI(MPI_Comm_size(lane->comm, &lane->size));
    *out = lane;
    return GW_OK;
}

void gw_lane_close(gw_lane *lane) {
    if (!lane)
        return;
    MPI_Comm_free(&lane->comm);
    free(lane->residual);
    free(lane);
}

/* The residual of what was just encoded: e = v - d, where `e` holds d = decode(wire) on entry. */
static void settle(float *e, float *v, size_t n, bool adopt) {
    for (size_t i = 0; i < n; i++) {
        float d = e[i];
        e[i] = v[i] - d;
        if (adopt)
            v[i] = d;
    }
}

static gw_err encode(gw_lane *lane, float *base, gw_span s, bool adopt, void *out, size_t cap,
                     size_t *len) {
    float *v = base + s.off;
    float *e = lane->residual ? lane->residual + s.off : NULL;
    uint64_t key =
        gw_rng_key(gw_rng_key(gw_rng_key(lane->seed, lane->ticket), (uint64_t)lane->rank), s.off);
    if (e)
        for (size_t i = 0; i < s.n; i++)
            v[i] += e[i];
    GW_TRY(gw_codec_encode(lane->codec, key, v, s.n, out, cap, len));
    if (e) {
        GW_TRY(gw_codec_decode(lane->codec, out, *len, e, s.n, 0));
        settle(e, v, s.n, adopt);
        return GW_OK;
    }
    return adopt ? gw_codec_decode(lane->codec, out, *len, v, s.n, 0) : GW_OK;
}

gw_err gw_lane_encode(gw_lane *lane, float *base, gw_span s, bool adopt, void *out, size_t cap,
                      size_t *len) {
    gw_phase_enter(GW_PHASE_ENCODE);
    gw_err e = encode(lane, base, s, adopt, out, cap, len);
    gw_phase_leave();
    return e;
}

gw_err gw_lane_decode(const gw_lane *lane, const void *in, size_t len, float *base, gw_span s,
                      bool add) {
    gw_phase_enter(GW_PHASE_DECODE);
    gw_err e = gw_codec_decode(lane->codec, in, len, base + s.off, s.n, add);
    gw_phase_leave();
    return e;
}

gw_err gw_lane_state(gw_lane *lane, gw_io *io) {
    return lane->residual ? gw_io_field(io, "residual", lane->residual, lane->n * sizeof(float))
                          : GW_OK;
}
