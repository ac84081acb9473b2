#include "comm/tuning.h"

#include "base/mem.h"
#include "comm/lane_parts.h"

#include <errno.h>
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
    return lane->name ? lane->name : "";
}

/* ---- writing ---- */

gw_err gw_tuning_print(const gw_tuning *t, const gw_lane *lane, char **text) {
    size_t len = 0;
    FILE *to = open_memstream(text, &len);
    if (!to)
        return gw_fail(GW_ERR_NOMEM, "auto: out of memory");
    for (int i = 0; i < t->n_sizes; i++)
        for (int a = 0; a < t->n_algos; a++) {
            const gw_tuning_row *row = &t->row[i];
            if (isnan(row->time_s[a]))
                continue;
            fprintf(to, "%d,%s,%s,%zu,%s,%.9g,%d\n", lane->size, tuning_lane_name(lane),
                    lane->codec->name, row->bytes, t->algo[a].ops->head.name, row->time_s[a],
                    a == row->chosen);
        }
    return fclose(to) == 0 ? GW_OK : gw_fail(GW_ERR_NOMEM, "auto: out of memory");
}

/* ---- reading ---- */

enum { FIELDS = 7 };

typedef struct reader {
    gw_tuning *t;
    const gw_lane *lane;
    const gw_algo_ops *except;
    const char *path;
    int line;
    int other_ranks; /* rows of a run on so many were passed over; 0: none */
} reader;

static gw_err tuning_bad(const reader *r, const char *what, const char *value) {
    return gw_fail(GW_ERR_INPUT, "algo=auto: table %s, line %d: %s '%.40s'", r->path, r->line, what,
                   value);
}

static gw_err tuning_whole(const reader *r, const char *text, uint64_t most, uint64_t *out) {
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (end == text || *end || errno || *text == '-' || *out > most)
        return tuning_bad(r, "not a number in range:", text);
    return GW_OK;
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
    gw_err err = gw_algo_open(&t->algo[t->n_algos], &GW_SPEC_NAMED(name), r->lane->codec);
    if (err != GW_OK) {
        char why[256];
        snprintf(why, sizeof why, "%s", gw_err_text());
        return gw_fail(GW_ERR_INPUT, "algo=auto: table %s, line %d: %s", r->path, r->line, why);
    }
    *out = t->n_algos++;
    return GW_OK;
}

static gw_err tuning_row(reader *r, const char *text, gw_tuning_row **out) {
    gw_tuning *t = r->t;
    uint64_t bytes;
    GW_TRY(tuning_whole(r, text, UINT64_C(1) << 50, &bytes));
    gw_tuning_row *last = t->n_sizes ? &t->row[t->n_sizes - 1] : NULL;
    if (bytes == 0 || (last && bytes < last->bytes))
        return tuning_bad(r, "sizes must ascend from 1:", text);
    if (!last || bytes > last->bytes) {
        if (last && last->chosen < 0)
            return tuning_bad(r, "nothing was chosen before size", text);
        if (t->n_sizes == GW_TUNING_SIZES)
            return tuning_bad(r, "too many sizes, at", text);
        last = &t->row[t->n_sizes++];
        last->bytes = (size_t)bytes;
        last->chosen = -1;
        for (int i = 0; i < GW_TUNING_ALGOS; i++)
            last->time_s[i] = NAN;
    }
    *out = last;
    return GW_OK;
}

static gw_err tuning_read_row(reader *r, char *field[FIELDS]) {
    uint64_t ranks, chosen;
    gw_tuning_row *row = NULL;
    int a = 0;
    char *end;
    GW_TRY(tuning_whole(r, field[0], INT32_MAX, &ranks));
    if (strcmp(field[1], tuning_lane_name(r->lane)) != 0 ||
        strcmp(field[2], r->lane->codec->name) != 0)
        return GW_OK;
    if ((int)ranks != r->lane->size) {
        r->other_ranks = (int)ranks;
        return GW_OK;
    }
    GW_TRY(tuning_row(r, field[3], &row));
    GW_TRY(tuning_algo(r, field[4], &a));
    double time_s = strtod(field[5], &end);
    if (end == field[5] || *end || !isfinite(time_s) || time_s < 0)
        return tuning_bad(r, "not a time:", field[5]);
    if (!isnan(row->time_s[a]))
        return tuning_bad(r, "a second time for", field[4]);
    GW_TRY(tuning_whole(r, field[6], 1, &chosen));
    if (chosen && row->chosen >= 0)
        return tuning_bad(r, "a second choice for one size:", field[4]);
    row->time_s[a] = time_s;
    row->chosen = chosen ? a : row->chosen;
    return GW_OK;
}

static gw_err tuning_read_line(reader *r, char *text) {
    char *field[FIELDS], *rest = text;
    int n = 0;
    r->line++;
    if (r->line == 1)
        return strcmp(text, "ranks,lane,codec,bytes,algorithm,time_s,chosen") == 0
                   ? GW_OK
                   : tuning_bad(r, "not the header of a run's algo.csv:", text);
    while (n < FIELDS && rest)
        field[n++] = strsep(&rest, ",");
    if (n < FIELDS || rest)
        return tuning_bad(r, "must have 7 fields:", text);
    return tuning_read_row(r, field);
}

static gw_err tuning_read_all(reader *r, char *text) {
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")) != NULL)
        if (*line || r->line == 0)
            GW_TRY(tuning_read_line(r, line));
    const gw_tuning *t = r->t;
    if (t->n_sizes == 0 && r->other_ranks)
        return gw_fail(GW_ERR_INPUT,
                       "algo=auto: table %s is of a run on %d ranks, this one has %d: measure "
                       "anew without table=",
                       r->path, r->other_ranks, r->lane->size);
    if (t->n_sizes == 0)
        return gw_fail(GW_ERR_INPUT,
                       "algo=auto: table %s has no rows for lane '%s' and codec %s: measure anew "
                       "without table=",
                       r->path, tuning_lane_name(r->lane), r->lane->codec->name);
    if (t->row[t->n_sizes - 1].chosen < 0)
        return tuning_bad(r, "nothing was chosen for the last size", "");
    return GW_OK;
}

gw_err gw_tuning_read(gw_tuning *t, const gw_lane *lane, const gw_algo_ops *except,
                      const char *path, const char *text) {
    reader r = {.t = t, .lane = lane, .except = except, .path = path};
    *t = (gw_tuning){0};
    char *copy = strdup(text);
    if (!copy)
        return gw_fail(GW_ERR_NOMEM, "auto: out of memory");
    gw_err e = tuning_read_all(&r, copy);
    free(copy);
    if (e != GW_OK)
        gw_tuning_clear(t);
    return e;
}
