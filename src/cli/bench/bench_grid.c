#include "cli/bench/bench_grid.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/text.h"
#include "mpi/wait.h"
#include "prof/clock.h"
#include "prof/ledger.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* ---- known data ---- */

enum {
    ROOT = 0, /* of reduce and bcast */
    PERIOD = 4093,
    KEYS = 4 /* draws of a random codec that its largest error is sought in */
};

static float *grid_table(const gw_grid *g, int rank) {
    return g->each + (size_t)rank * PERIOD;
}

/* The same on all ranks. Each of the P-1 additions rounds a partial sum of at most sum|x| by 2^-24
 * of it; doubled, for sums that are kept in another form on the way. */
static gw_err grid_open_data(gw_grid *g) {
    int ranks = g->place->ranks;
    GW_TRY(gw_alloc(&g->each, (size_t)ranks * PERIOD, sizeof *g->each));
    GW_TRY(gw_alloc(&g->sum, PERIOD, sizeof *g->sum));
    GW_TRY(gw_alloc(&g->slack, PERIOD, sizeof *g->slack));
    for (int i = 0; i < PERIOD; i++) {
        double size = 0;
        for (int r = 0; r < ranks; r++) {
            float *x = &grid_table(g, r)[i];
            *x = (float)gw_rng_normal(gw_rng_key(g->seed, (uint64_t)r), (uint64_t)i);
            g->sum[i] += *x;
            size += fabsf(*x);
        }
        g->slack[i] = 0x1p-23 * ranks * size;
    }
    return GW_OK;
}

/* Widen *most to the largest error of one element of x when it is encoded. */
static gw_err grid_widen(const gw_codec *codec, const float *x, void *wire, double *most) {
    static float y[PERIOD];
    size_t cap = gw_codec_bound(codec, PERIOD), len;
    for (uint64_t key = 0; key < KEYS; key++) {
        gw_turn turn = {gw_rng_key(1, key), 1};
        GW_TRY(gw_codec_encode(codec, turn, x, PERIOD, wire, cap, &len));
        GW_TRY(gw_codec_decode(codec, wire, len, y, PERIOD, GW_INTO_SET));
        for (int i = 0; i < PERIOD; i++)
            *most = fmax(*most, fabs((double)y[i] - x[i]));
    }
    return GW_OK;
}

/* By the errors of each rank's data, and of the sums of the ranks 0..r. */
static gw_err grid_find_bound(const gw_grid *g, gw_grid_wire *w) {
    float sum[PERIOD] = {0};
    void *wire = NULL;
    double most = 0;
    if (!w->lane || w->codec.caps & (GW_CODEC_IDENTITY | GW_CODEC_LOSSLESS))
        return GW_OK;
    gw_err e = gw_alloc(&wire, gw_codec_bound(&w->codec, PERIOD), 1);
    for (int r = 0; e == GW_OK && r < g->place->ranks; r++) {
        for (int i = 0; i < PERIOD; i++)
            sum[i] += grid_table(g, r)[i];
        e = grid_widen(&w->codec, grid_table(g, r), wire, &most);
        GW_THEN(e, grid_widen(&w->codec, sum, wire, &most));
    }
    free(wire);
    w->bound = 3.0 * g->place->ranks * most;
    return e;
}

/* Elements of y[s] that are further from the sum (`of` negative), or from what rank `of` has there,
 * than rounding and `bound` allow, or not numbers. */
static uint64_t grid_wrong_in(const gw_grid *g, const float *y, gw_span s, int of, double bound) {
    uint64_t wrong = 0;
    for (size_t i = s.off, t = i % PERIOD; i < gw_span_end(s); i++) {
        double want = of < 0 ? g->sum[t] : (double)grid_table(g, of)[t];
        wrong += !(fabs(y[i] - want) <= (of < 0 ? g->slack[t] : 0) + bound);
        t = t + 1 == PERIOD ? 0 : t + 1;
    }
    return wrong;
}

void gw_grid_check(gw_grid *g, gw_grid_cell *c, size_t n) {
    enum { SUM = -1 };
    const float *y = c->wire->base;
    double bound = c->wire->bound;
    int rank = g->place->rank, ranks = g->place->ranks;
    gw_span all = {0, n}, own = g->verb == GW_REDUCE_SCATTER ? gw_span_part(all, rank, ranks) : all;
    if (g->verb == GW_ALLGATHER)
        for (int r = 0; r < ranks; r++)
            c->wrong += grid_wrong_in(g, y, gw_span_part(all, r, ranks), r, bound);
    else if (g->verb != GW_REDUCE || rank == ROOT)
        c->wrong += grid_wrong_in(g, y, own, g->verb == GW_BCAST ? ROOT : SUM, bound);
}

/* ---- cells ---- */

gw_err gw_grid_read(gw_grid *g, const gw_args *args) {
    const gw_spec *algos = gw_args_spec(args, "algos");
    g->seed = (uint64_t)gw_args_int(args, "seed");
    g->algos = algos ? algos->parts : NULL;
    g->codecs = gw_args_spec(args, "compress")->parts;
    return gw_bench_sizes_read(&g->sizes, gw_args_text(args, "sizes"));
}

/* The wire of a codec, opened if it is not there yet. `apart` matters only to a codec that prepares
 * for the ranks whose encodings are added. */
static gw_err grid_wire(gw_grid *g, const gw_spec *spec, bool apart, gw_grid_wire **out) {
    gw_codec codec;
    for (int w = 0; w < g->wires; w++)
        if (strcmp(g->wire[w].codec.spec, spec->text) == 0 &&
            (g->wire[w].apart == apart || !g->wire[w].codec.ops->join)) {
            *out = &g->wire[w];
            return GW_OK;
        }
    GW_TRY(gw_codec_open(&codec, spec));
    *out = &g->wire[g->wires++];
    **out = (gw_grid_wire){.codec = codec, .apart = apart};
    return GW_OK;
}

/* Keep a refusal; every other error goes up. */
static gw_err grid_keep_refusal(gw_grid_cell *c, gw_err e) {
    if (e != GW_ERR_UNSUPPORTED)
        return e;
    free(c->refused);
    c->refused = strdup(gw_err_text());
    return c->refused ? GW_OK : gw_fail(GW_ERR_NOMEM, "bench: out of memory");
}

gw_err gw_grid_add(gw_grid *g, gw_spec algo, const gw_spec *codec, bool mpi) {
    if (g->n == GW_GRID_CELLS)
        return gw_fail(GW_ERR_USAGE, "bench: more than %d cells of a size", GW_GRID_CELLS);
    gw_grid_cell *c = &g->cell[g->n];
    *c = (gw_grid_cell){.spec = algo, .mpi = mpi};
    GW_TRY(grid_wire(g, codec, true, &c->wire));
    g->n++;
    if (mpi)
        return GW_OK;
    gw_err e = gw_algo_open(&c->algo, &c->spec, &c->wire->codec);
    if (e == GW_OK && g->verb == GW_BCAST && !(c->wire->codec.caps & GW_CODEC_IDENTITY))
        e = gw_fail(GW_ERR_UNSUPPORTED,
                    "algorithm %s over codec %s: broadcasts carry exact values only", algo.text,
                    c->wire->codec.spec);
    if (e == GW_OK && c->algo.ops->caps & GW_ALGO_ORDERED)
        e = grid_wire(g, codec, false, &c->wire);
    c->never = e != GW_OK;
    return grid_keep_refusal(c, e);
}

static gw_err grid_open_wire(gw_grid *g, gw_grid_wire *w) {
    size_t n = g->sizes.most / sizeof(float);
    gw_lane_setup setup = {.codec = &w->codec,
                           .apart = w->apart,
                           .n = n,
                           .seed = g->seed,
                           .yield = g->place->oversubscribed,
                           .shared = true}; /* for the algorithms that read their peers' memory */
    GW_TRY(gw_lane_open(&w->lane, g->place->comm, &setup));
    return gw_lane_floats(w->lane, n, &w->base);
}

/* Why it did not open is the refusal of its cells. */
static gw_err grid_refuse_wire(gw_grid *g, const gw_grid_wire *w, gw_err e) {
    char why[256];
    if (e != GW_ERR_UNSUPPORTED)
        return e;
    gw_text_copy(why, sizeof why, gw_err_text());
    for (int i = 0; i < g->n; i++) {
        gw_grid_cell *c = &g->cell[i];
        if (c->wire != w || c->never)
            continue;
        c->never = true;
        GW_TRY(grid_keep_refusal(
            c, gw_fail(e, "algorithm %s over codec %s: %s", c->spec.text, w->codec.spec, why)));
    }
    return GW_OK;
}

gw_err gw_grid_open(gw_grid *g, const gw_bench_place *place) {
    g->place = place;
    GW_TRY(gw_agree(place->comm, grid_open_data(g)));
    for (const gw_grid_cell *c = g->cell; c < g->cell + g->n; c++)
        if (!c->never && !c->wire->lane)
            GW_TRY(grid_refuse_wire(g, c->wire, grid_open_wire(g, c->wire)));
    gw_err e = GW_OK;
    for (int w = 0; w < g->wires && e == GW_OK; w++) /* of the codec as it is for these ranks */
        e = grid_find_bound(g, &g->wire[w]);
    GW_TRY(gw_agree(place->comm, e));
    for (int i = 0; i < g->n; i++) {
        gw_grid_cell *c = &g->cell[i];
        c->timed = (gw_timed){.algo = &c->algo, .lane = c->wire->lane, .base = c->wire->base};
    }
    return GW_OK;
}

/* What is laid down or run now is this cell's: the codec's lane is others', too. */
static void grid_turn(gw_grid_cell *c) {
    gw_lane_encoder(c->wire->lane)->codings = &c->codings;
}

gw_err gw_grid_lay(gw_grid *g, gw_grid_cell *c, size_t n) {
    if (c->mpi || c->never)
        return GW_OK;
    grid_turn(c);
    return grid_keep_refusal(c, gw_timed_lay(&c->timed, g->verb, ROOT, n));
}

bool gw_grid_ready(const gw_grid_cell *c) {
    return c->mpi || c->timed.schedule;
}

/* ---- MPI's own ---- */

static gw_err grid_scatter_or_gather(const gw_lane *lane, gw_verb verb, float *x, size_t n) {
    int *counts = NULL, ranks = gw_lane_size(lane), rc;
    /* Counts and offsets of the ranks' parts, in ints: sizes end at 1 GiB. */
    GW_TRY(gw_alloc(&counts, 2 * (size_t)ranks, sizeof *counts));
    int *offsets = counts + ranks;
    for (int r = 0; r < ranks; r++) {
        gw_span s = gw_span_part((gw_span){0, n}, r, ranks);
        counts[r] = (int)s.n;
        offsets[r] = (int)s.off;
    }
    if (verb == GW_ALLGATHER) {
        rc = MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_FLOAT, x, counts, offsets, MPI_FLOAT,
                            gw_lane_comm(lane));
    } else {
        rc = MPI_Reduce_scatter(MPI_IN_PLACE, x, counts, MPI_FLOAT, MPI_SUM, gw_lane_comm(lane));
        /* it leaves the part at the front; where it belongs is within x in any case */
        int rank = gw_lane_rank(lane);
        memmove(x + offsets[rank], x, (size_t)counts[rank] * sizeof *x);
    }
    free(counts);
    return gw_mpi_check(rc, "MPI's own collective");
}

static gw_err grid_mpi_blocking(const gw_lane *lane, gw_verb verb, float *x, size_t n) {
    MPI_Comm comm = gw_lane_comm(lane);
    bool root = gw_lane_rank(lane) == ROOT;
    if (verb == GW_ALLREDUCE)
        GW_MPI(MPI_Allreduce(MPI_IN_PLACE, x, (int)n, MPI_FLOAT, MPI_SUM, comm));
    else if (verb == GW_REDUCE)
        GW_MPI(MPI_Reduce(root ? MPI_IN_PLACE : x, root ? x : NULL, (int)n, MPI_FLOAT, MPI_SUM,
                          ROOT, comm));
    else if (verb == GW_BCAST)
        GW_MPI(MPI_Bcast(x, (int)n, MPI_FLOAT, ROOT, comm));
    else
        return grid_scatter_or_gather(lane, verb, x, n);
    return GW_OK;
}

/* ---- running ---- */

static gw_err grid_polled(gw_schedule *s, bool yield) {
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

void gw_grid_fill(gw_grid *g, gw_grid_cell *c, size_t n) {
    grid_turn(c);
    for (size_t i = 0; i < n; i += PERIOD)
        memcpy(c->wire->base + i, grid_table(g, g->place->rank),
               (n - i < PERIOD ? n - i : PERIOD) * sizeof(float));
    gw_lane_begin(c->wire->lane); /* every exchange draws its own random numbers */
}

gw_err gw_grid_run(gw_grid *g, gw_grid_cell *c, bool polls, size_t n, double *s) {
    const gw_lane *lane = c->wire->lane;
    gw_grid_fill(g, c, n);
    GW_TRY(gw_bench_sync(g->place));
    uint64_t start = gw_clock_ticks();
    if (c->mpi)
        GW_TRY(grid_mpi_blocking(lane, g->verb, c->wire->base, n));
    else
        GW_TRY(polls ? grid_polled(c->timed.schedule, gw_lane_yields(lane))
                     : gw_schedule_run(c->timed.schedule));
    *s = gw_clock_since(start);
    return GW_OK;
}

gw_err gw_grid_weigh(gw_grid *g, gw_grid_cell *c, size_t n) {
    const gw_bench_place *place = g->place;
    double s;
    gw_batch_cost cost;
    gw_ledger_start();
    gw_ledger_begin();
    GW_TRY(gw_grid_run(g, c, false, n, &s));
    gw_ledger_end(&cost);
    gw_ledger_set_profile(GW_PROFILE_OFF); /* what is timed goes without probes */
    c->wire_bytes = (double)cost.wire_bytes / place->ranks;
    return gw_allreduce(MPI_IN_PLACE, &c->wire_bytes, 1, MPI_DOUBLE, MPI_SUM, place->comm);
}

/* ---- all sizes ---- */

gw_err gw_grid_sizes(gw_grid *g, bool (*skips)(const gw_grid_cell *c), gw_err (*measure)(size_t n),
                     gw_err (*report)(size_t bytes), bool *own) {
    const gw_bench_place *place = g->place;
    for (int s = 0; s < g->sizes.n; s++) {
        size_t n = g->sizes.bytes[s] / sizeof(float);
        for (int i = 0; i < g->n; i++) {
            g->cell[i].wrong = 0;
            if (!skips || !skips(&g->cell[i]))
                GW_TRY(gw_grid_lay(g, &g->cell[i], n));
        }
        gw_err e = measure(n);
        *own = e != GW_OK; /* the others wait in an exchange */
        GW_TRY(e);
        for (int i = 0; i < g->n; i++) {
            gw_grid_cell *c = &g->cell[i];
            c->encoded = c->codings.floats;
            GW_TRY(gw_allreduce(MPI_IN_PLACE, &c->wrong, 1, MPI_UINT64_T, MPI_SUM, place->comm));
            GW_TRY(gw_allreduce(MPI_IN_PLACE, &c->encoded, 1, MPI_UINT64_T, MPI_SUM, place->comm));
            g->wrong += c->wrong;
        }
        GW_TRY(gw_agree(place->comm, place->rank == 0 ? report(g->sizes.bytes[s]) : GW_OK));
    }
    return GW_OK;
}

static bool grid_idle(const gw_grid_cell *c) {
    return gw_grid_ready(c) && !(c->wire->codec.caps & GW_CODEC_IDENTITY) && c->encoded == 0;
}

const char *gw_grid_codec(const gw_grid_cell *c, char text[GW_GRID_LABEL]) {
    if (!grid_idle(c))
        return c->wire->codec.spec;
    gw_text_print(text, GW_GRID_LABEL, "%s (not encoded here)", c->wire->codec.spec);
    return text;
}

static void grid_keep(json_t *to, const gw_grid_cell *c, const char *reason) {
    json_array_append_new(to, gw_json_object("algorithm:s codec:s reason:s", c->spec.text,
                                             c->wire->codec.spec, reason));
}

void gw_grid_tell(const gw_grid *g, int each, json_t *facts) {
    json_t *refused = json_array(), *idle = json_array();
    for (int i = 0; i < g->n; i += each) {
        const gw_grid_cell *c = &g->cell[i];
        const char *why =
            g->place->ranks == 1 ? "1 rank exchanges nothing" : "no encoding was counted";
        if (c->refused) {
            printf("refused: %s\n", c->refused);
            grid_keep(refused, c, c->refused);
        } else if (grid_idle(c)) {
            printf("not encoded here: %s over %s: %s\n", c->wire->codec.spec, c->spec.text, why);
            grid_keep(idle, c, why);
        }
    }
    json_object_set_new(facts, "refused", refused);
    json_object_set_new(facts, "not_encoded", idle);
}

gw_err gw_grid_verdict(const gw_grid *g) {
    return g->wrong == 0 ? GW_OK
                         : gw_fail(GW_ERR_INTERNAL,
                                   "bench: %llu wrong elements: the column 'wrong' of 'gradwire "
                                   "bench allreduce' shows which algorithm and codec made them",
                                   (unsigned long long)g->wrong);
}

void gw_grid_close(gw_grid *g) {
    for (int i = 0; i < g->n; i++)
        gw_timed_close(&g->cell[i].timed);
    for (int w = g->wires - 1; w >= 0; w--)
        gw_lane_close(g->wire[w].lane);
}

void gw_grid_free(gw_grid *g) {
    for (int i = 0; i < g->n; i++) {
        gw_algo_close(&g->cell[i].algo);
        free(g->cell[i].refused);
    }
    for (int w = 0; w < g->wires; w++)
        gw_codec_close(&g->wire[w].codec);
    free(g->each);
    free(g->sum);
    free(g->slack);
}
