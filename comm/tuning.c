#include "comm/tuning.h"

#include "base/mem.h"
#include "base/table.h"
#include "comm/channel.h"
#include "comm/timing.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gw_tuning_clear(gw_tuning *t) {
    for (int i = 0; i < t->n_algos; i++)
        gw_algo_close(&t->algo[i]);
    *t = (gw_tuning){0};
}

int gw_tuning_choice(const gw_tuning *t, size_t n) {
    double bytes = (double)n * sizeof(float);
    int i = 0;
    while (i + 1 < t->n_sizes &&
           bytes > sqrt((double)t->row[i].bytes * (double)t->row[i + 1].bytes))
        i++;
    return t->row[i].chosen;
}

static const char *tuning_lane_name(const gw_lane *lane) {
    const char *name = gw_lane_encoder(lane)->of->name;
    return name ? name : "";
}

/* ---- the table file ---- */

enum { NAME = 64 }; /* as long as a codec's */

typedef struct tuning_line {
    int ranks, chosen;
    char lane[NAME], codec[NAME], algorithm[NAME];
    uint64_t bytes;
    double time_s;
} tuning_line;

static const gw_column tuning_columns[] = {
    GW_COLUMN(tuning_line, "ranks", INT, ranks),
    GW_COLUMN_TEXT(tuning_line, "lane", lane),
    GW_COLUMN_TEXT(tuning_line, "codec", codec),
    GW_COLUMN(tuning_line, "bytes", U64, bytes),
    GW_COLUMN_TEXT(tuning_line, "algorithm", algorithm),
    GW_COLUMN_REAL(tuning_line, "time_s", time_s, 9),
    GW_COLUMN(tuning_line, "chosen", INT, chosen),
};
static const gw_table tuning_file = GW_TABLE("algo.csv", tuning_line, tuning_columns);

gw_err gw_tuning_print(const gw_tuning *t, const gw_lane *lane, char **text) {
    size_t len = 0;
    FILE *to = open_memstream(text, &len);
    if (!to)
        return gw_fail(GW_ERR_NOMEM, "auto: out of memory");
    for (int i = 0; i < t->n_sizes; i++)
        for (int a = 0; a < t->n_algos; a++) {
            const gw_tuning_row *row = &t->row[i];
            tuning_line line = {.ranks = gw_lane_size(lane),
                                .chosen = a == row->chosen,
                                .bytes = row->bytes,
                                .time_s = row->time_s[a]};
            snprintf(line.lane, NAME, "%s", tuning_lane_name(lane));
            snprintf(line.codec, NAME, "%s", gw_lane_codec(lane)->name);
            snprintf(line.algorithm, NAME, "%s", t->algo[a].ops->head.name);
            if (!isnan(line.time_s))
                gw_table_write(&tuning_file, to, &line, 1); /* fclose tells of a failure */
        }
    return fclose(to) == 0 ? GW_OK : gw_fail(GW_ERR_NOMEM, "auto: out of memory");
}

/* ---- reading ---- */

typedef struct reader {
    gw_tuning *t;
    const gw_lane *lane;
    const gw_algo_ops *except;
    gw_table_reader in;
    int other_ranks; /* rows of a run on so many were skipped; 0: none */
} reader;

static gw_err tuning_bad(const reader *r, const char *what, const char *value) {
    return gw_fail(GW_ERR_INPUT, "%s, line %" PRId64 ": %s '%.40s'", r->in.path, r->in.line, what,
                   value);
}

/* By name only: a path in a table must not load code. */
static gw_err tuning_algo(reader *r, const char *name, int *out) {
    gw_tuning *t = r->t;
    const gw_entry *const *e = gw_algos.entries;
    for (int i = 0; i < t->n_algos; i++)
        if (strcmp(t->algo[i].ops->head.name, name) == 0) {
            *out = i;
            return GW_OK;
        }
    while (*e && (strcmp((*e)->name, name) != 0 || *e == &r->except->head))
        e++;
    if (!*e)
        return tuning_bad(r, "no algorithm to choose is called", name);
    if (t->n_algos == GW_TUNING_ALGOS)
        return tuning_bad(r, "more algorithms than there are, at", name);
    gw_err err = gw_algo_open(&t->algo[t->n_algos], &GW_SPEC_NAMED(name), gw_lane_codec(r->lane));
    if (err != GW_OK) {
        char why[256];
        snprintf(why, sizeof why, "%s", gw_err_text());
        return gw_fail(GW_ERR_INPUT, "%s, line %" PRId64 ": %s", r->in.path, r->in.line, why);
    }
    *out = t->n_algos++;
    return GW_OK;
}

static gw_err tuning_read_line(reader *r, const tuning_line *line) {
    gw_tuning *t = r->t;
    gw_tuning_row *row = t->n_sizes ? &t->row[t->n_sizes - 1] : NULL;
    int a = 0;
    char size[32];
    if (strcmp(line->lane, tuning_lane_name(r->lane)) != 0 ||
        strcmp(line->codec, gw_lane_codec(r->lane)->name) != 0)
        return GW_OK;
    if (line->ranks != gw_lane_size(r->lane)) {
        r->other_ranks = line->ranks;
        return GW_OK;
    }
    snprintf(size, sizeof size, "%" PRIu64, line->bytes);
    if (line->bytes == 0 || line->bytes > UINT64_C(1) << 50 || (row && line->bytes < row->bytes))
        return tuning_bad(r, "sizes must ascend from 1:", size);
    if (!row || line->bytes > row->bytes) {
        if (row && row->chosen < 0)
            return tuning_bad(r, "nothing was chosen before size", size);
        if (t->n_sizes == GW_TUNING_SIZES)
            return tuning_bad(r, "too many sizes, at", size);
        row = &t->row[t->n_sizes++];
        row->bytes = (size_t)line->bytes;
        row->chosen = -1;
        for (int i = 0; i < GW_TUNING_ALGOS; i++)
            row->time_s[i] = NAN;
    }
    GW_TRY(tuning_algo(r, line->algorithm, &a));
    if (!isfinite(line->time_s) || line->time_s < 0)
        return tuning_bad(r, "not a time of", line->algorithm);
    if (!isnan(row->time_s[a]))
        return tuning_bad(r, "a second time for", line->algorithm);
    if (line->chosen != 0 && line->chosen != 1)
        return tuning_bad(r, "chosen must be 0 or 1 for", line->algorithm);
    if (line->chosen && row->chosen >= 0)
        return tuning_bad(r, "a second choice for one size:", line->algorithm);
    row->time_s[a] = line->time_s;
    row->chosen = line->chosen ? a : row->chosen;
    return GW_OK;
}

static gw_err tuning_read_all(reader *r) {
    tuning_line line;
    bool more = true;
    while (more) {
        GW_TRY(gw_table_read(&r->in, &line, &more));
        if (more)
            GW_TRY(tuning_read_line(r, &line));
    }
    const gw_tuning *t = r->t;
    if (t->n_sizes == 0 && r->other_ranks)
        return gw_fail(GW_ERR_INPUT,
                       "%s is of a run on %d ranks, this one has %d: measure anew without table=",
                       r->in.path, r->other_ranks, gw_lane_size(r->lane));
    if (t->n_sizes == 0)
        return gw_fail(GW_ERR_INPUT,
                       "%s has no rows for lane '%s' and codec %s: measure anew without table=",
                       r->in.path, tuning_lane_name(r->lane), gw_lane_codec(r->lane)->name);
    if (t->row[t->n_sizes - 1].chosen < 0)
        return tuning_bad(r, "nothing was chosen for the last size", "");
    return GW_OK;
}

gw_err gw_tuning_read(gw_tuning *t, const gw_lane *lane, const gw_algo_ops *except,
                      const char *path, const char *text) {
    char where[512];
    snprintf(where, sizeof where, "algo=auto: table %s", path);
    reader r = {.t = t,
                .lane = lane,
                .except = except,
                .in = {.table = &tuning_file,
                       .path = where,
                       .in = fmemopen((void *)text, strlen(text), "r")}};
    *t = (gw_tuning){0};
    if (!r.in.in)
        return gw_fail(GW_ERR_NOMEM, "auto: out of memory");
    gw_err e = tuning_read_all(&r);
    fclose(r.in.in);
    if (e != GW_OK)
        gw_tuning_clear(t);
    return e;
}

/* ---- measuring ---- */

static const size_t wanted[] = {4 << 10, 64 << 10, 1 << 20, 8 << 20};
enum { WANTED = sizeof wanted / sizeof *wanted };

typedef struct tuner {
    gw_tuning *t;
    gw_lane *lane;
    gw_timing timing;
    gw_timed timed[GW_TUNING_ALGOS];
} tuner;

static gw_err tuning_gather(gw_tuning *t, const gw_lane *lane, const gw_algo_ops *except) {
    const gw_channel *c = gw_lane_channel(lane);
    int here = c->shared ? gw_shared_size(c->shared) : 1;
    int nodes = here > 1 && here < gw_lane_size(lane); /* several, of several ranks each */
    GW_TRY(c->fabric->ops->sum(c->fabric, &nodes));
    for (const gw_entry *const *e = gw_algos.entries; *e; e++) {
        bool layered = strcmp((*e)->name, "hier") == 0; /* on one node the same as shm */
        if (*e == &except->head || (layered && !nodes) || t->n_algos == GW_TUNING_ALGOS)
            continue;
        gw_err err =
            gw_algo_open(&t->algo[t->n_algos], &GW_SPEC_NAMED((*e)->name), gw_lane_codec(lane));
        if (err == GW_OK)
            t->n_algos++;
        else if (err != GW_ERR_UNSUPPORTED)
            return err;
    }
    return GW_OK;
}

static gw_err tuning_run_once(void *ctx, int i, double *s) {
    return gw_timed_run(&((tuner *)ctx)->timed[i], s);
}

/* The fastest by the medians. */
static gw_err tuning_choose(void *ctx, size_t n) {
    tuner *p = ctx;
    gw_tuning_row *row = &p->t->row[p->t->n_sizes++];
    *row = (gw_tuning_row){.bytes = n * sizeof(float), .chosen = -1};
    for (int a = 0; a < p->t->n_algos; a++) {
        gw_samples *s = &p->timed[a].times;
        row->time_s[a] = s->n > 0 ? gw_stats_median(s->x, s->n) : NAN;
        if (s->n > 0 && (row->chosen < 0 || row->time_s[a] < row->time_s[row->chosen]))
            row->chosen = a;
    }
    return row->chosen >= 0
               ? GW_OK
               : gw_fail(GW_ERR_UNSUPPORTED, "algo=auto: no algorithm carries codec %s here",
                         gw_lane_codec(p->lane)->name);
}

static gw_err tuning_measure(tuner *p, double budget_s) {
    gw_lane *lane = p->lane;
    size_t arena = gw_lane_encoder(lane)->of->n * sizeof(float), most = wanted[WANTED - 1];
    float *scratch;
    arena = arena < most ? arena : most;
    gw_timing_plan plan = {.wanted = wanted,
                           .n_wanted = WANTED,
                           .arena = arena,
                           .budget_s = budget_s,
                           .least = 1,
                           .most = 15,
                           .hopeless = 8,
                           .end = tuning_choose};
    GW_TRY(gw_lane_floats(lane, arena / sizeof(float), &scratch));
    p->timing.rounds = (gw_rounds){
        .comm = gw_lane_comm(lane), .seed = gw_lane_seed(lane), .once = tuning_run_once, .ctx = p};
    for (int a = 0; a < p->t->n_algos; a++) {
        p->timed[a] = (gw_timed){.algo = &p->t->algo[a], .lane = lane, .base = scratch};
        p->timing.timed[p->timing.n++] = &p->timed[a];
    }
    gw_err e = gw_timing_sizes(&p->timing, &plan);
    for (int a = 0; a < p->t->n_algos; a++)
        gw_timed_close(&p->timed[a]);
    return e;
}

gw_err gw_tuning_measure(gw_tuning *t, gw_lane *lane, const gw_algo_ops *except, double budget_s) {
    const gw_encoder *encoder = gw_lane_encoder(lane);
    size_t n = encoder->of->n;
    float *residual = NULL;
    tuner *p = NULL;
    gw_codings before = {0}; /* trials are no part of the run */
    *t = (gw_tuning){0};
    gw_err e = gw_alloc(&p, 1, sizeof *p);
    if (e == GW_OK && encoder->residual)
        e = gw_alloc(&residual, n, sizeof *residual);
    GW_THEN(e, tuning_gather(t, lane, except));
    e = gw_lane_agree(lane, e);
    if (e == GW_OK) {
        *p = (tuner){.t = t, .lane = lane};
        if (encoder->codings)
            before = *encoder->codings;
        if (residual)
            memcpy(residual, encoder->residual, n * sizeof *residual);
        e = tuning_measure(p, budget_s);
        if (encoder->codings)
            *encoder->codings = before;
        if (residual)
            memcpy(encoder->residual, residual, n * sizeof *residual);
    }
    free(residual);
    free(p);
    if (e != GW_OK)
        gw_tuning_clear(t);
    return e;
}
