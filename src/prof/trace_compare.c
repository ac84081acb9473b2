#include "base/file.h"
#include "base/text.h"
#include "prof/trace_sums.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Columns of batches.csv that a trace knows, too. */
enum {
    RANK,
    STEP,
    START,
    CLOCK_ERR,
    WALL,
    INFLIGHT,
    WIRE,
    PHASE,
    KNOWN = PHASE + GW_PHASES,
    MOST_COLUMNS = 256
};

typedef struct table {
    FILE *in;
    const char *path;
    char *text; /* the present line */
    size_t room;
    uint64_t line;
    int of[MOST_COLUMNS]; /* what the i-th column is; -1: nothing a trace knows */
    int columns;
    double clock_err_s; /* the worst of its rows; 0: no row has one */
} table;

void gw_trace_fault(gw_trace_report *report, uint64_t line, int rank, int64_t step, uint64_t ns,
                    const char *fmt, ...) {
    if (report->faults++ >= GW_TRACE_FAULTS)
        return;
    char *to = report->fault[report->faults - 1], what[GW_TRACE_FAULT], clean[GW_TRACE_FAULT];
    char place[160] = "";
    size_t n = 0;
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    gw_text_plain(clean, sizeof clean, what);
    if (line > 0)
        n += (size_t)snprintf(place + n, sizeof place - n, "line %" PRIu64 ": ", line);
    if (rank >= 0)
        n += (size_t)snprintf(place + n, sizeof place - n, "rank %d, ", rank);
    if (step >= 0)
        n += (size_t)snprintf(place + n, sizeof place - n, "step %" PRId64 ", ", step);
    if (ns != UINT64_MAX)
        snprintf(place + n, sizeof place - n, "%.6f ms: ", (double)ns * 1e-6);
    size_t used = (size_t)snprintf(to, GW_TRACE_FAULT, "%s", place);
    gw_text_copy(to + used, GW_TRACE_FAULT - used, clean);
}

static gw_err refuse(const table *t, const char *what) {
    return gw_fail(GW_ERR_INPUT, "%s: line %llu: %s: no batches.csv, or a damaged one", t->path,
                   (unsigned long long)t->line, what);
}

/* False: there is none. */
static bool next_line(table *t) {
    ssize_t n = getline(&t->text, &t->room, t->in);
    if (n <= 0)
        return false;
    t->line++;
    if (t->text[n - 1] == '\n')
        t->text[n - 1] = 0;
    return true;
}

static int known(const char *column) {
    static const char *const names[PHASE] = {"rank",   "step",       "t_start_s", "clock_err_s",
                                             "wall_s", "inflight_s", "wire_bytes"};
    size_t stem = strlen(column);
    for (int i = 0; i < PHASE; i++)
        if (strcmp(column, names[i]) == 0)
            return i;
    if (stem < 2 || strcmp(column + stem - 2, "_s") != 0)
        return -1;
    for (int p = 0; p < GW_PHASES; p++) {
        const char *name = gw_phase_name((gw_phase)p);
        if (strlen(name) == stem - 2 && strncmp(column, name, stem - 2) == 0)
            return PHASE + p;
    }
    return -1;
}

static gw_err header(table *t) {
    bool have[KNOWN] = {false};
    if (!next_line(t))
        return refuse(t, "it is empty");
    char *rest = t->text;
    for (char *name; (name = strsep(&rest, ",")) != NULL; t->columns++) {
        if (t->columns == MOST_COLUMNS)
            return refuse(t, "too many columns");
        int what = known(name);
        t->of[t->columns] = what;
        if (what >= 0)
            have[what] = true;
    }
    for (int i = 0; i < KNOWN; i++)
        if (!have[i])
            return refuse(t, "a column is missing");
    return GW_OK;
}

/* The values of the present line; blank: NaN. */
static gw_err values(table *t, double x[KNOWN]) {
    char *rest = t->text, *end;
    int column = 0;
    for (char *text; (text = strsep(&rest, ",")) != NULL; column++) {
        if (column == t->columns)
            return refuse(t, "more values than columns");
        if (t->of[column] < 0)
            continue;
        x[t->of[column]] = *text ? strtod(text, &end) : NAN;
        if (*text && *end)
            return refuse(t, "a value is no number");
    }
    return column == t->columns ? GW_OK : refuse(t, "fewer values than columns");
}

static bool near(uint64_t ns, double s, uint64_t slices) {
    return fabs((double)ns * 1e-9 - s) <= 1e-3 * s + 2e-9 * (double)(slices + 2);
}

static void compare(const table *t, const gw_trace_batches *b, int rank, gw_trace_sums *sums,
                    const double x[KNOWN], gw_trace_report *report) {
    const char *where = "batches.csv";
    sums->in_table = true;
    report->rows++;
    double error = 1e-6 + 10 * t->clock_err_s;
    if (!isnan(x[START]) && fabs((double)sums->start * 1e-9 - x[START]) > error)
        gw_trace_fault(report, 0, rank, sums->step, sums->start,
                       "the batch begins at %.9g s, in line %llu of %s at %.9g",
                       (double)sums->start * 1e-9, (unsigned long long)t->line, where, x[START]);
    if (!isnan(x[WALL]) && !near(sums->wall, x[WALL], 0))
        gw_trace_fault(report, 0, rank, sums->step, sums->start,
                       "the batch takes %.9g s, in line %llu of %s %.9g", (double)sums->wall * 1e-9,
                       (unsigned long long)t->line, where, x[WALL]);
    for (int p = 0; p < GW_PHASES; p++)
        if (!isnan(x[PHASE + p]) && !near(sums->phase[p], x[PHASE + p], sums->slices))
            gw_trace_fault(report, 0, rank, sums->step, sums->start,
                           "its %s slices take %.9g s, in line %llu of %s %.9g",
                           gw_phase_name((gw_phase)p), (double)sums->phase[p] * 1e-9,
                           (unsigned long long)t->line, where, x[PHASE + p]);
    if (!isnan(x[INFLIGHT]) && sums->start >= b->flights_from &&
        !near(sums->inflight, x[INFLIGHT], sums->slices))
        gw_trace_fault(report, 0, rank, sums->step, sums->start,
                       "requests were in flight for %.9g s of its computation, in line %llu of %s "
                       "%.9g",
                       (double)sums->inflight * 1e-9, (unsigned long long)t->line, where,
                       x[INFLIGHT]);
    if (!isnan(x[WIRE]) && !isnan(sums->wire) && sums->wire != x[WIRE])
        gw_trace_fault(report, 0, rank, sums->step, sums->start,
                       "the counter wire is %.15g, in line %llu of %s %.15g", sums->wire,
                       (unsigned long long)t->line, where, x[WIRE]);
}

/* The batch of a row; NULL: the trace has dropped it, or never had it. */
static gw_trace_sums *find(gw_trace_batches *ranks, int n, const double x[KNOWN]) {
    if (!(x[RANK] >= 0 && x[RANK] < n && x[STEP] >= 1 && x[STEP] < 0x1p53))
        return NULL;
    gw_trace_batches *b = &ranks[(int)x[RANK]];
    int64_t step = (int64_t)x[STEP];
    size_t low = 0, high = b->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (b->at[mid].step < step)
            low = mid + 1;
        else
            high = mid;
    }
    return low < b->n && b->at[low].step == step ? &b->at[low] : NULL;
}

/* The trace lays its whole length on the common clock, so the worst look of any row counts. */
static gw_err worst_clock(table *t) {
    double x[KNOWN];
    GW_TRY(header(t));
    while (next_line(t)) {
        GW_TRY(values(t, x));
        t->clock_err_s = fmax(t->clock_err_s, x[CLOCK_ERR]); /* passes a NaN over */
    }
    rewind(t->in);
    t->line = 0;
    t->columns = 0;
    return GW_OK;
}

static gw_err rows(table *t, gw_trace_batches *ranks, int n, gw_trace_report *report) {
    double x[KNOWN];
    GW_TRY(worst_clock(t));
    GW_TRY(header(t));
    while (next_line(t)) {
        GW_TRY(values(t, x));
        gw_trace_sums *sums = find(ranks, n, x);
        if (sums)
            compare(t, &ranks[(int)x[RANK]], (int)x[RANK], sums, x, report);
    }
    return ferror(t->in) ? refuse(t, "cannot be read further") : GW_OK;
}

gw_err gw_trace_compare(const char *path, gw_trace_batches *ranks, int n, gw_trace_report *report) {
    table t = {.path = path};
    size_t len;
    GW_TRY(gw_file_open(path, &t.in, &len));
    report->rows = 0;
    gw_err e = rows(&t, ranks, n, report);
    for (int r = 0; r < n && e == GW_OK; r++)
        for (size_t i = 0; i < ranks[r].n; i++)
            if (!ranks[r].at[i].in_table)
                gw_trace_fault(report, 0, r, ranks[r].at[i].step, ranks[r].at[i].start,
                               "batches.csv has no row of it");
    free(t.text);
    fclose(t.in);
    return e;
}
