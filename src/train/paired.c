#include "train/paired.h"

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "mpi/wait.h"
#include "step/snapshot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKING, OVERLAPPED, VARIANTS };
enum { SALT = 0x70616972, BOOTSTRAP = 0x626f6f74 };

/* Series over the steps, in their order. */
enum { WALL_B, WALL_O, SAVED, RATIO, INTERFERENCE, HIDDEN, SERIES };

/* A pair of several steps: one fills the pipeline, some are timed, one drains it. */
enum { FILL = 1, TIMED = 4, DRAIN = 1, BLOCK = FILL + TIMED + DRAIN };

enum { COMPUTE, EXPOSED, INFLIGHT, MEANS };

/* A pair's seconds a timed step: walls of the slowest rank, the rest means over the ranks. While it
 * is under way: sums of this rank. */
typedef struct row {
    int64_t step;
    int first, steps, equal;
    double wall[VARIANTS], mean[MEANS][VARIANTS], saved, interference;
} row;

static const char *const variants[] = {[BLOCKING] = "blocking", [OVERLAPPED] = "overlapped", NULL};
static const gw_column columns[] = {
    GW_COLUMN(row, "step", I64, step),
    GW_COLUMN_NAME(row, "first", first, variants),
    GW_COLUMN(row, "steps", INT, steps),
    GW_COLUMN_REAL(row, "blocking_wall_s", wall[BLOCKING], 9),
    GW_COLUMN_REAL(row, "overlapped_wall_s", wall[OVERLAPPED], 9),
    GW_COLUMN_REAL(row, "saved_s", saved, 9),
    GW_COLUMN_REAL(row, "blocking_compute_s", mean[COMPUTE][BLOCKING], 9),
    GW_COLUMN_REAL(row, "overlapped_compute_s", mean[COMPUTE][OVERLAPPED], 9),
    GW_COLUMN_REAL(row, "interference_s", interference, 9),
    GW_COLUMN_REAL(row, "blocking_exposed_s", mean[EXPOSED][BLOCKING], 9),
    GW_COLUMN_REAL(row, "overlapped_exposed_s", mean[EXPOSED][OVERLAPPED], 9),
    GW_COLUMN_REAL(row, "blocking_inflight_s", mean[INFLIGHT][BLOCKING], 9),
    GW_COLUMN_REAL(row, "inflight_s", mean[INFLIGHT][OVERLAPPED], 9),
    GW_COLUMN(row, "equal", INT, equal),
};
static const gw_table table = GW_TABLE("paired.csv", row, columns);

struct gw_paired {
    MPI_Comm comm;
    int rank, ranks;
    uint64_t seed;
    gw_stepper *stepper;
    gradwire *g[VARIANTS];
    gw_guard *watch, twin_watch; /* the run's; what the twin finds is no news */
    bool lazy;                   /* the run's --update */
    bool same;                   /* the twin is the same strategy */
    bool promise;                /* both variants must end with the same bits */
    int wanted;                  /* steps of a pair: 1 or BLOCK */
    /* the pair under way */
    int n, done;   /* done: of the overlapped steps; 0: none is under way */
    bool compares; /* false: cut so short that no step of it can be timed */
    row now;
    gw_snapshot start, end;
    gw_samples series[SERIES];
    int equal;
    double difference;
    gw_file *csv; /* rank 0 */
};

/* ---- what can be paired ---- */

gw_err gw_paired_check(const gradwire *g) {
    gw_inside_facts is = gw_inside_know(g);
    const char *why = NULL;
    if (!is.codec)
        return gw_fail(GW_ERR_UNSUPPORTED, "train: --paired compares one codec over one algorithm: "
                                           "name them instead of --compress auto");
    if (!(is.traits & GW_STRATEGY_SYNCHRONOUS))
        why = "its ranks do not make the same updates, so a twin cannot begin where they are";
    else if (!is.hooks.ready && !(is.traits & GW_STRATEGY_LATE))
        why = "it blocks, so nothing is overlapped";
    else if (is.traits & GW_STRATEGY_LOSSY)
        why = "it compresses by itself, which no blocking exchange repeats";
    if (why)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "train: --paired has no twin for --comm %s: %s; use iallreduce, sparse, "
                       "sharded or delayed",
                       is.strategy, why);
    return GW_OK;
}

/* ---- opening ---- */

static gw_err paired_open_csv(gw_paired *p, const gw_train_config *c) {
    if (!c->run.out || p->rank != 0)
        return GW_OK;
    GW_TRY(gw_file_create(&p->csv, c->run.out, table.file));
    gw_table_header(&table, gw_file_stream(p->csv));
    return GW_OK;
}

gw_err gw_paired_open(gw_paired **out, const gw_train_config *c, gw_stepper *stepper,
                      const gw_step_setup *setup, bool cut, MPI_Comm comm) {
    gw_paired *p = NULL;
    gw_inside_facts is = stepper->is;
    gw_err e = gw_alloc(&p, 1, sizeof *p);
    if (e == GW_OK) {
        p->comm = comm;
        p->seed = c->run.seed;
        p->stepper = stepper;
        p->g[OVERLAPPED] = stepper->g;
        p->watch = stepper->guard;
        p->lazy = c->run.lazy;
        p->same = gw_inside_repeats(stepper->g);
        p->wanted = c->run.lazy || is.traits & GW_STRATEGY_LATE
                        ? BLOCK
                        : 1; /* does its exchange end in the next step? */
        e = gw_inside_twin(&p->g[BLOCKING], stepper->g, c->run.comm, c->run.compress,
                           c->run.feedback);
    }
    GW_THEN(e, gw_comm_place(comm, &p->rank, &p->ranks));
    GW_THEN(e, paired_open_csv(p, c));
    e = gw_agree(comm, e);
    if (e == GW_OK) {
        gw_step_setup twin = *setup; /* every pair puts parameters in place */
        twin.lazy = c->run.lazy && p->same;
        e = gw_step_open(stepper, p->g[BLOCKING], &twin);
        gw_step_use(stepper, p->g[OVERLAPPED]);
    }
    if (e != GW_OK) {
        gw_paired_close(p);
        return e;
    }
    /* a + b is b + a, so two ranks' sum has the same bits in whatever order it is formed */
    p->promise = p->ranks <= 2 && !cut && is.lossless;
    *out = p;
    return GW_OK;
}

void gw_paired_close(gw_paired *p) {
    if (!p)
        return;
    gradwire_close(p->g[BLOCKING]);
    gw_snapshot_free(&p->start);
    gw_snapshot_free(&p->end);
    for (int i = 0; i < SERIES; i++)
        gw_samples_free(&p->series[i]);
    gw_file_abandon(p->csv);
    free(p);
}

/* ---- a pair ---- */

/* From now on the stepper works with this exchange. */
static void paired_use(gw_paired *p, int variant) {
    gw_stepper *t = p->stepper;
    bool twin = variant == BLOCKING;
    t->apart = twin;
    t->lazy = p->lazy && !(twin && !p->same);
    t->guard = twin && p->watch ? &p->twin_watch : p->watch;
    gw_step_use(t, p->g[variant]);
}

/* Both variants begin alike: their state was just put in place, and the ranks have met. */
static gw_err paired_begin(gw_paired *p, int variant) {
    paired_use(p, variant);
    GW_TRY(gw_snapshot_put(&p->start, p->stepper));
    return gw_barrier(p->comm);
}

/* Step i of the pair took so much. */
static void paired_count(gw_paired *p, int v, int i, const gw_batch_cost *c) {
    const double *phase = c->phase_s;
    row *r = &p->now;
    if (p->n > 1 && (i < FILL || i >= p->n - DRAIN))
        return;
    r->wall[v] += c->wall_s;
    r->mean[COMPUTE][v] += gw_phases_computation(phase);
    r->mean[EXPOSED][v] +=
        phase[GW_PHASE_MPI_POST] + phase[GW_PHASE_MPI_POLL] + phase[GW_PHASE_MPI_WAIT];
    r->mean[INFLIGHT][v] += c->inflight_s;
}

/* All of the pair's steps, of which the first is `ahead` steps after the present one. */
static gw_err paired_take_twin(gw_paired *p, gw_paired_run *run, void *ctx, int ahead,
                               int64_t step) {
    GW_TRY(paired_begin(p, BLOCKING));
    if (p->watch)
        p->twin_watch = *p->watch;
    for (int i = 0; i < p->n; i++) {
        gw_batch_parts batch = {.step = step + i};
        p->twin_watch.step = step + i;
        GW_TRY(run(ctx, &(gw_paired_take){.at = ahead + i}, &batch));
        paired_count(p, BLOCKING, i, &batch.cost);
    }
    return GW_OK;
}

/* The arenas hold what the two steps made of the parameters. */
static gw_err paired_compare(gw_paired *p, int64_t step, bool *equal) {
    const float *a = gradwire_memory(p->g[BLOCKING], 0, GRADWIRE_PARAM);
    const float *b = gradwire_memory(p->g[OVERLAPPED], 0, GRADWIRE_PARAM);
    size_t n = gw_model_size(p->stepper->model);
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        most = d > most ? d : most;
    }
    int differ = memcmp(a, b, n * sizeof *a) != 0;
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &differ, 1, MPI_INT, MPI_MAX, p->comm));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &most, 1, MPI_DOUBLE, MPI_MAX, p->comm));
    p->difference = most > p->difference ? most : p->difference;
    *equal = !differ;
    p->equal += *equal;
    if (differ && p->promise)
        return gw_fail(GW_ERR_DIVERGED,
                       "step %lld: overlapped and blocking exchange end with different parameters "
                       "(by up to %g), though sums of two exact gradients cannot differ",
                       (long long)step, most);
    return GW_OK;
}

static gw_err paired_keep(gw_paired *p, int64_t step, bool equal) {
    row *r = &p->now;
    r->step = step;
    r->steps = p->n == 1 ? 1 : p->n - FILL - DRAIN;
    r->equal = equal;
    GW_TRY(gw_allreduce(MPI_IN_PLACE, r->wall, VARIANTS, MPI_DOUBLE, MPI_MAX, p->comm));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, r->mean, MEANS * VARIANTS, MPI_DOUBLE, MPI_SUM, p->comm));
    for (int v = 0; v < VARIANTS; v++) {
        r->wall[v] /= r->steps;
        for (int i = 0; i < MEANS; i++)
            r->mean[i][v] /= p->ranks * r->steps;
    }
    r->saved = r->wall[BLOCKING] - r->wall[OVERLAPPED];
    r->interference = r->mean[COMPUTE][OVERLAPPED] - r->mean[COMPUTE][BLOCKING];
    const double figures[SERIES] = {[WALL_B] = r->wall[BLOCKING],
                                    [WALL_O] = r->wall[OVERLAPPED],
                                    [SAVED] = r->saved,
                                    [RATIO] = r->wall[BLOCKING] / r->wall[OVERLAPPED],
                                    [INTERFERENCE] = r->interference,
                                    [HIDDEN] = r->mean[INFLIGHT][OVERLAPPED]};
    gw_err e = gw_table_write(&table, p->csv ? gw_file_stream(p->csv) : NULL, r, 1);
    for (int i = 0; i < SERIES && e == GW_OK; i++)
        e = gw_samples_add(&p->series[i], figures[i]);
    return gw_agree(p->comm, e);
}

int gw_paired_wants(const gw_paired *p) {
    return p->done == 0 ? p->wanted : 0;
}

static gw_err paired_begin_pair(gw_paired *p, gw_paired_run *run, void *ctx, int ahead,
                                int64_t step) {
    uint64_t key = gw_rng_key(p->seed, SALT);
    p->n = ahead < p->wanted ? ahead : p->wanted;
    p->now = (row){.first = (int)(gw_rng_u64(key, (uint64_t)step) & 1)};
    p->compares = p->wanted == 1 || p->n > FILL + DRAIN;
    if (!p->compares)
        return GW_OK;
    GW_TRY(gw_snapshot_take(&p->start, p->stepper));
    if (p->now.first == BLOCKING)
        GW_TRY(paired_take_twin(p, run, ctx, 0, step));
    return paired_begin(p, OVERLAPPED);
}

/* The twin's turn, if it has not come yet: of steps that are behind. */
static gw_err paired_end_pair(gw_paired *p, gw_paired_run *run, void *ctx, int64_t step) {
    if (!p->compares || p->now.first == BLOCKING)
        return GW_OK;
    GW_TRY(gw_snapshot_take(&p->end, p->stepper));
    return paired_take_twin(p, run, ctx, 1 - p->n, step + 1 - p->n);
}

/* The run goes on from the overlapped steps. */
static gw_err paired_conclude(gw_paired *p, int64_t step) {
    bool equal;
    p->done = 0;
    if (!p->compares)
        return GW_OK;
    GW_TRY(paired_compare(p, step, &equal));
    GW_TRY(paired_keep(p, step, equal));
    if (p->now.first == BLOCKING)
        return GW_OK; /* it is in place */
    paired_use(p, OVERLAPPED);
    return gw_agree(p->comm, gw_snapshot_put(&p->end, p->stepper));
}

gw_err gw_paired_step(gw_paired *p, gw_paired_run *run, void *ctx, int ahead, gw_batch_parts *batch,
                      bool *own) {
    gw_err e = p->done == 0 ? paired_begin_pair(p, run, ctx, ahead, batch->step) : GW_OK;
    bool last = p->done + 1 == p->n;
    gw_paired_take take = {.counts = true, .drain = last && p->wanted > 1};
    GW_THEN(e, run(ctx, &take, batch));
    if (e == GW_OK) {
        paired_count(p, OVERLAPPED, p->done++, &batch->cost);
        e = last ? paired_end_pair(p, run, ctx, batch->step) : GW_OK;
    }
    *own = e != GW_OK;
    GW_TRY(e);
    return last ? paired_conclude(p, batch->step) : GW_OK;
}

/* ---- the end ---- */

gw_err gw_paired_finish(gw_paired *p, int warmup, gw_paired_result *out) {
    int warm = (warmup + p->wanted - 1) / p->wanted;
    int skip = p->series[0].n > 2 * warm ? warm : 0, n = p->series[0].n - skip;
    gw_stats *to[SERIES] = {&out->blocking, &out->overlapped,   &out->saved,
                            &out->ratio,    &out->interference, &out->inflight};
    *out = (gw_paired_result){.pairs = n,
                              .block = n > 0 ? gw_stats_block(n) : 0,
                              .steps = p->wanted == 1 ? 1 : TIMED,
                              .equal = p->equal,
                              .difference = p->difference};
    gw_err e = GW_OK;
    for (int i = 0; i < SERIES && n > 0 && e == GW_OK; i++)
        e = gw_stats_series(p->series[i].x + skip, n, gw_rng_key(p->seed, BOOTSTRAP), to[i]);
    GW_THEN(e, gw_file_commit(&p->csv));
    return gw_agree(p->comm, e);
}

/* NAME, NAME_ci_low and NAME_ci_high. */
json_t *gw_paired_json(const gw_paired_result *r) {
    if (r->pairs == 0)
        return json_null();
    json_t *all =
        gw_json_object("pairs:i steps_a_pair:i block:i method:s", r->pairs, r->steps, r->block,
                       "medians over the pairs, a step; 95% intervals by a moving-block "
                       "bootstrap, blocks as said");
    gw_json_stats(all, "blocking_wall", "_s", &r->blocking);
    gw_json_stats(all, "overlapped_wall", "_s", &r->overlapped);
    gw_json_stats(all, "saved", "_s", &r->saved);
    gw_json_stats(all, "ratio", "", &r->ratio);
    gw_json_stats(all, "interference", "_s", &r->interference);
    gw_json_stats(all, "inflight", "_s", &r->inflight);
    return gw_json_add(all, "equal_steps:i largest_difference:f", r->equal, r->difference);
}
