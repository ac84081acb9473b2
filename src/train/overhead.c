#include "train/overhead.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/text.h"
#include "mpi/wait.h"
#include "prof/clock.h"
#include "step/snapshot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WARMUP = 3, LEVELS = GW_OVERHEAD_LEVELS + 1, SALT = 0x6f766572 };
#define BUDGET_S 0.1

typedef struct rehearsal {
    const gw_overhead_job *job;
    gw_profile profiles[LEVELS]; /* off first */
    int n, rounds;
    int64_t taken; /* rounds, the warm-up's included */
    double *wall;  /* (n, rounds) */

    uint64_t regions[LEVELS];
    bool *own;
} rehearsal;

/* A step that follows one of its own kind, as those of a run do: its code is at hand. */
static gw_err overhead_one(rehearsal *r, int level, double *wall) {
    gw_batch_cost cost;
    gw_ledger_set_profile(r->profiles[level]);
    GW_TRY(gw_barrier(r->job->comm));
    gw_err e = r->job->step(r->job->ctx, r->taken, &cost);
    uint64_t start = gw_clock_ticks();
    GW_THEN(e, r->job->step(r->job->ctx, r->taken, &cost));
    *wall = gw_clock_seconds(gw_clock_ticks() - start);
    if (cost.regions != GW_UNCOUNTED)
        r->regions[level] += cost.regions;
    *r->own = e != GW_OK;
    return e;
}

/* One step of each level in a random order, that all ranks agree on. */
static gw_err overhead_round_of(rehearsal *r, double wall[LEVELS]) {
    uint32_t order[LEVELS] = {0, 1, 2};
    gw_rng_shuffle(gw_rng_key(gw_rng_key(r->job->seed, SALT), (uint64_t)r->taken), order,
                   (uint32_t)r->n);
    for (int i = 0; i < r->n; i++)
        GW_TRY(overhead_one(r, (int)order[i], &wall[order[i]]));
    r->taken++;
    return GW_OK;
}

static gw_err overhead_compare(rehearsal *r, int level, gw_overhead *o) {
    const double *off = r->wall, *on = r->wall + (size_t)level * (size_t)r->rounds;
    double *x = NULL;
    int ranks;
    size_t n = (size_t)r->rounds;
    GW_TRY(gw_comm_place(r->job->comm, NULL, &ranks));
    GW_TRY(gw_agree(r->job->comm, gw_alloc(&x, n, sizeof *x)));
    memcpy(x, off, n * sizeof *x);
    o->off_s = gw_stats_median(x, r->rounds);
    memcpy(x, on, n * sizeof *x);
    o->on_s = gw_stats_median(x, r->rounds);
    for (size_t i = 0; i < n; i++)
        x[i] = on[i] / off[i];
    o->ratio = gw_stats_of(x, r->rounds);
    free(x);
    o->pairs = r->rounds;
    o->regions = (double)r->regions[level] / r->rounds / ranks;
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &o->regions, 1, MPI_DOUBLE, MPI_SUM, r->job->comm));
    gw_ledger_set_profile(o->profile);
    o->region_s = gw_ledger_region_cost();
    return GW_OK;
}

static gw_err overhead_rehearse(rehearsal *r, gw_overhead *out) {
    /* The warm-up tells how many rounds the budget is good for; 0: too few. */
    double wall[LEVELS], spent = 0; /* on the last round, slowest ranks' walls */
    for (int k = 0; k < WARMUP; k++) {
        spent = 0;
        GW_TRY(overhead_round_of(r, wall));
        for (int i = 0; i < r->n; i++)
            spent += wall[i];
    }
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &spent, 1, MPI_DOUBLE, MPI_MAX, r->job->comm));
    r->rounds = r->job->rounds;
    if (r->rounds == GW_OVERHEAD_AUTO) {
        double fit = BUDGET_S / (2 * spent);
        r->rounds = fit < GW_OVERHEAD_LEAST ? 0 : fit > 1000 ? 1000 : (int)fit;
    }
    memset(r->regions, 0, sizeof r->regions);
    for (int i = 1; r->rounds == 0 && i < r->n; i++)
        snprintf(out[i - 1].why, sizeof out->why,
                 "too short: two steps of each take %.3g ms, and %d times as much should fit into "
                 "%.1f s: --overhead PAIRS measures it",
                 2 * spent * 1e3, GW_OVERHEAD_LEAST, BUDGET_S);
    if (r->rounds == 0)
        return GW_OK;
    GW_TRY(gw_agree(r->job->comm,
                    gw_alloc(&r->wall, (size_t)r->n * (size_t)r->rounds, sizeof *r->wall)));
    for (int k = 0; k < r->rounds; k++) {
        GW_TRY(overhead_round_of(r, wall));
        for (int i = 0; i < r->n; i++)
            r->wall[(size_t)i * (size_t)r->rounds + (size_t)k] = wall[i];
    }
    GW_TRY(
        gw_allreduce(MPI_IN_PLACE, r->wall, r->n * r->rounds, MPI_DOUBLE, MPI_MAX, r->job->comm));
    for (int i = 1; i < r->n; i++)
        GW_TRY(overhead_compare(r, i, &out[i - 1]));
    return GW_OK;
}

/* The run must not notice that there was a rehearsal. */
static gw_err overhead_check_back(gw_snapshot *before, gw_snapshot *after,
                                  const gw_overhead_job *job) {
    GW_TRY(gw_agree(job->comm, gw_snapshot_put(before, job->stepper)));
    gw_err e = gw_snapshot_take(after, job->stepper);
    if (e == GW_OK && !gw_snapshot_same(before, after))
        e = gw_fail(GW_ERR_INTERNAL,
                    "the state before the first step did not come back after the steps that "
                    "measure the overhead: --overhead 0 leaves them out");
    return gw_agree(job->comm, e);
}

gw_err gw_overhead_measure(gw_overhead *out, const gw_overhead_job *job, bool *own) {
    rehearsal r = {.job = job, .profiles = {GW_PROFILE_OFF}, .n = job->n + 1, .own = own};
    gw_profile before = gw_ledger_profile();
    gw_snapshot start = {0}, end = {0};
    for (int i = 0; i < job->n; i++) {
        r.profiles[i + 1] = job->profiles[i];
        out[i] = (gw_overhead){.profile = job->profiles[i],
                               .off_s = NAN,
                               .on_s = NAN,
                               .ratio = {.median = NAN, .ci_low = NAN, .ci_high = NAN},
                               .regions = NAN,
                               .region_s = NAN};
    }
    gw_err e = gw_agree(job->comm, gw_snapshot_take(&start, job->stepper));
    if (e == GW_ERR_UNSUPPORTED) {
        for (int i = 0; i < job->n; i++)
            gw_text_print(out[i].why, sizeof out->why, "cannot be rehearsed: %s", gw_err_text());
        e = GW_OK;
    } else if (e == GW_OK) {
        e = overhead_rehearse(&r, out);
        gw_ledger_set_profile(before);
        GW_THEN(e, overhead_check_back(&start, &end, job));
    }
    gw_snapshot_free(&start);
    gw_snapshot_free(&end);
    free(r.wall);
    return e;
}

const char *gw_overhead_profile_name(gw_profile profile) {
    static const char *const names[] = {
        [GW_PROFILE_OFF] = "off", [GW_PROFILE_TIMERS] = "timers", [GW_PROFILE_FULL] = "full"};
    return names[profile];
}

json_t *gw_overhead_json(const gw_overhead *o) {
    return gw_json_object(
        "level:s pairs:i ratio:f ci_low:f ci_high:f step_off_s:f step_on_s:f regions:f region_s:f "
        "estimate:f method:s why:t",
        gw_overhead_profile_name(o->profile), o->pairs, o->ratio.median, o->ratio.ci_low,
        o->ratio.ci_high, o->off_s, o->on_s, o->regions, o->region_s,
        o->regions * o->region_s / o->off_s,
        "median of the walls' ratio, with over without probes, of pairs of steps in random order; "
        "95% interval from order statistics; estimate: regions times the cost of one, by the step",
        o->why);
}
