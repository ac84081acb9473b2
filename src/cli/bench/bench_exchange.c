#include "cli/bench/bench_exchange.h"

#include "base/mem.h"
#include "comm/lane_parts.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

gw_err gw_bench_wire_open(gw_bench_wire *w, const gw_bench_place *place, size_t n, uint64_t seed) {
    gw_lane_setup setup = {.codec = &w->codec,
                           .n = n,
                           .seed = seed,
                           .yield = place->oversubscribed,
                           .shared = true}; /* for the algorithms that read their peers' memory */
    GW_TRY(gw_lane_open(&w->lane, place->comm, &setup));
    return gw_lane_floats(w->lane, n, &w->base);
}

void gw_bench_wire_close(gw_bench_wire *w) {
    gw_lane_close(w->lane);
    w->lane = NULL;
}

/* Keep a refusal; every other error goes up. */
static gw_err keep_refusal(gw_bench_exchange *x, gw_err e) {
    if (e != GW_ERR_UNSUPPORTED)
        return e;
    free(x->refused);
    x->refused = strdup(gw_err_text());
    return x->refused ? GW_OK : gw_fail(GW_ERR_NOMEM, "bench: out of memory");
}

gw_err gw_bench_exchange_open(gw_bench_exchange *x, gw_verb verb) {
    if (x->mpi)
        return GW_OK;
    gw_err e = gw_algo_open(&x->algo, x->spec, &x->wire->codec);
    if (e == GW_OK && verb == GW_BCAST && !(x->wire->codec.caps & GW_CODEC_IDENTITY))
        e = gw_fail(GW_ERR_UNSUPPORTED,
                    "algorithm %s over codec %s: broadcasts carry exact values only", x->spec,
                    x->wire->spec);
    x->never = e != GW_OK;
    return keep_refusal(x, e);
}

void gw_bench_exchange_close(gw_bench_exchange *x) {
    gw_schedule_free(x->schedule);
    gw_algo_close(&x->algo);
    free(x->refused);
    *x = (gw_bench_exchange){0};
}

static gw_err lay(gw_bench_exchange *x, gw_verb verb, size_t n) {
    GW_TRY(gw_schedule_new(&x->schedule, x->wire->lane, x->wire->base, (gw_span){0, n}));
    gw_err e = gw_algo_lay_down(&x->algo, x->schedule, verb, GW_BENCH_ROOT);
    if (e == GW_OK)
        return GW_OK;
    gw_schedule_free(x->schedule);
    x->schedule = NULL;
    return e;
}

gw_err gw_bench_exchange_lay(gw_bench_exchange *x, const gw_bench_place *place, gw_verb verb,
                             size_t n) {
    gw_schedule_free(x->schedule);
    x->schedule = NULL;
    if (x->mpi || x->never)
        return GW_OK;
    return keep_refusal(x, gw_agree(place->comm, lay(x, verb, n)));
}

bool gw_bench_exchange_ready(const gw_bench_exchange *x) {
    return x->mpi || x->schedule;
}

void gw_bench_exchange_tell(const gw_bench_exchange *x, json_t *to) {
    if (!x->refused)
        return;
    printf("refused: %s\n", x->refused);
    json_array_append_new(to, json_pack("{s:s, s:s, s:s}", "algorithm", x->spec, "codec",
                                        x->wire->spec, "reason", x->refused));
}

/* ---- MPI's own ---- */

/* Counts and offsets of the ranks' parts, in ints: sizes end at 1 GiB. */
static gw_err parts(size_t n, int ranks, int **counts, int **offsets) {
    GW_TRY(gw_alloc(counts, 2 * (size_t)ranks, sizeof **counts));
    *offsets = *counts + ranks;
    for (int r = 0; r < ranks; r++) {
        gw_span s = gw_span_part((gw_span){0, n}, r, ranks);
        (*counts)[r] = (int)s.n;
        (*offsets)[r] = (int)s.off;
    }
    return GW_OK;
}

static gw_err scatter_or_gather(const gw_lane *lane, gw_verb verb, float *x, size_t n) {
    int *counts = NULL, *offsets = NULL, rc;
    GW_TRY(parts(n, lane->size, &counts, &offsets));
    if (verb == GW_ALLGATHER) {
        rc = MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, x, counts, offsets, MPI_FLOAT, lane->comm);
    } else {
        rc = MPI_Reduce_scatter(MPI_IN_PLACE, x, counts, MPI_FLOAT, MPI_SUM, lane->comm);
        /* it leaves the part at the front; where it belongs is within x in any case */
        memmove(x + offsets[lane->rank], x, (size_t)counts[lane->rank] * sizeof *x);
    }
    free(counts);
    return gw_mpi_check(rc, "MPI's own collective");
}

static gw_err mpi_blocking(const gw_lane *lane, gw_verb verb, float *x, size_t n) {
    int count = (int)n;
    bool root = lane->rank == GW_BENCH_ROOT;
    switch (verb) {
    case GW_ALLREDUCE:
        GW_MPI(MPI_Allreduce(MPI_IN_PLACE, x, count, MPI_FLOAT, MPI_SUM, lane->comm));
        return GW_OK;
    case GW_REDUCE:
        GW_MPI(MPI_Reduce(root ? MPI_IN_PLACE : x, root ? x : NULL, count, MPI_FLOAT, MPI_SUM,
                          GW_BENCH_ROOT, lane->comm));
        return GW_OK;
    case GW_BCAST: GW_MPI(MPI_Bcast(x, count, MPI_FLOAT, GW_BENCH_ROOT, lane->comm)); return GW_OK;
    case GW_REDUCE_SCATTER:
    case GW_ALLGATHER: return scatter_or_gather(lane, verb, x, n);
    }
    abort(); /* no such verb */
}

/* ---- running ---- */

static gw_err polled(gw_schedule *s, bool yield) {
    bool done = false;
    GW_TRY(gw_schedule_start(s));
    while (true) {
        GW_TRY(gw_schedule_test(s, &done));
        if (done)
            return GW_OK;
        if (yield)
            sched_yield();
    }
}

gw_err gw_bench_exchange_run(const gw_bench_exchange *x, gw_verb verb, gw_bench_how how, size_t n) {
    gw_lane *lane = x->wire->lane;
    lane->ticket++; /* every exchange draws its own random numbers */
    if (x->mpi)
        return mpi_blocking(lane, verb, x->wire->base, n);
    return how == GW_BENCH_BLOCKING ? gw_schedule_run(x->schedule)
                                    : polled(x->schedule, lane->yield);
}
