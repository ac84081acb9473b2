#include "prof/columns.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef enum form { INT, I64, U64, LONG, SECONDS, LOSS } form;

typedef struct column {
    const char *name;
    form form;
    size_t at; /* in a gw_batch_row */
} column;

#define ROW(field)   offsetof(gw_batch_row, field)
#define PHASE(phase) ROW(cost.phase_s) + GW_PHASE_##phase * sizeof(double)

static const column columns[] = {
    {"rank", INT, ROW(rank)},
    {"epoch", INT, ROW(epoch)},
    {"step", I64, ROW(step)},
    {"samples", INT, ROW(samples)},
    {"loss", LOSS, ROW(loss)},
    {"t_start_s", SECONDS, ROW(cost.start_s)},
    {"wall_s", SECONDS, ROW(cost.wall_s)},
    {"data_s", SECONDS, PHASE(DATA)},
    {"forward_s", SECONDS, PHASE(FORWARD)},
    {"backward_s", SECONDS, PHASE(BACKWARD)},
    {"update_s", SECONDS, PHASE(UPDATE)},
    {"core_ctr_s", SECONDS, ROW(split.core_ctr_s)},
    {"memory_ctr_s", SECONDS, ROW(split.memory_ctr_s)},
    {"core_twin_s", SECONDS, ROW(split.core_twin_s)},
    {"memory_twin_s", SECONDS, ROW(split.memory_twin_s)},
    {"core_model_lo_s", SECONDS, ROW(split.core_model_lo_s)},
    {"core_model_hi_s", SECONDS, ROW(split.core_model_hi_s)},
    {"memory_model_lo_s", SECONDS, ROW(split.memory_model_lo_s)},
    {"memory_model_hi_s", SECONDS, ROW(split.memory_model_hi_s)},
    {"encode_s", SECONDS, PHASE(ENCODE)},
    {"decode_s", SECONDS, PHASE(DECODE)},
    {"memory_codec_ctr_s", SECONDS, ROW(split.memory_codec_ctr_s)},
    {"memory_codec_twin_s", SECONDS, ROW(split.memory_codec_twin_s)},
    {"mpi_post_s", SECONDS, PHASE(MPI_POST)},
    {"mpi_poll_s", SECONDS, PHASE(MPI_POLL)},
    {"mpi_wait_s", SECONDS, PHASE(MPI_WAIT)},
    {"wait_skew_s", SECONDS, ROW(wait_skew_s)},
    {"transfer_s", SECONDS, ROW(transfer_s)},
    {"checkpoint_s", SECONDS, PHASE(CHECKPOINT)},
    {"other_s", SECONDS, PHASE(OTHER)},
    {"inflight_s", SECONDS, ROW(cost.inflight_s)},
    {"logical_bytes", U64, ROW(logical_bytes)},
    {"wire_bytes", U64, ROW(cost.wire_bytes)},
    {"messages", U64, ROW(cost.messages)},
    {"collectives", U64, ROW(cost.collectives)},
    {"cpu_s", SECONDS, ROW(cost.cpu_s)},
    {"nivcsw", LONG, ROW(cost.nivcsw)},
    {"minflt", LONG, ROW(cost.minflt)},
    {"clock_err_s", SECONDS, ROW(clock_err_s)},
};
enum { COLUMNS = sizeof columns / sizeof *columns };
_Static_assert(GW_PHASES == 11, "every phase has a column");

static const char *source_name(gw_split_source source) {
    static const char *const names[] = {
        [GW_SPLIT_NONE] = "", [GW_SPLIT_TWIN_MODEL] = "twin+model", [GW_SPLIT_CTR] = "ctr"};
    return names[source];
}

void gw_columns_header(char line[GW_COLUMNS_LINE], const char (*counter)[GW_COUNTER_NAME],
                       int counters) {
    int at = 0;
    for (int i = 0; i < COLUMNS; i++)
        at += snprintf(line + at, GW_COLUMNS_LINE - (size_t)at, "%s,", columns[i].name);
    at += snprintf(line + at, GW_COLUMNS_LINE - (size_t)at, "source,clean");
    for (int i = 0; i < counters; i++)
        at += snprintf(line + at, GW_COLUMNS_LINE - (size_t)at, ",%s", counter[i]);
}

/* A figure that is missing is blank, never 0. */
static void real(FILE *to, double x, int digits) {
    if (!isnan(x))
        fprintf(to, "%.*g", digits, x);
}

/* The same for counts, which have no NaN. */
static void count(FILE *to, uint64_t n) {
    if (n != GW_UNCOUNTED)
        fprintf(to, "%" PRIu64, n);
}

static void events(FILE *to, long n) {
    if (n >= 0)
        fprintf(to, "%ld", n);
}

/* Eleven digits hold a clock tick in a batch of seconds, so a reader can check the sums. */
static void value(FILE *to, form f, const void *at) {
    switch (f) {
    case INT: fprintf(to, "%d", *(const int *)at); break;
    case I64: fprintf(to, "%" PRId64, *(const int64_t *)at); break;
    case U64: count(to, *(const uint64_t *)at); break;
    case LONG: events(to, *(const long *)at); break;
    case SECONDS: real(to, *(const double *)at, 11); break;
    case LOSS: real(to, *(const double *)at, 9); break;
    }
}

void gw_columns_row(FILE *to, const gw_batch_row *row, int counters) {
    for (int i = 0; i < COLUMNS; i++) {
        value(to, columns[i].form, (const char *)row + columns[i].at);
        fputc(',', to);
    }
    fprintf(to, "%s,", source_name(row->source));
    if (row->cost.nivcsw >= 0)
        fprintf(to, "%d", gw_batch_clean(&row->cost));
    for (int i = 0; i < counters; i++) {
        fputc(',', to);
        real(to, row->counter[i], 15);
    }
    fputc('\n', to);
}

/* ---- reading ---- */

/* strtod and its like would take blanks, a plus sign, words. */
static bool is_like(form f, const char *text) {
    text += *text == '-';
    return isdigit((unsigned char)*text) || (f == LOSS && strcmp(text, "inf") == 0);
}

static bool read_value(form f, const char *text, void *at) {
    char *end = (char *)text;
    bool blank = !*text;
    if (!blank && !is_like(f, text))
        return false;
    switch (f) {
    case INT: *(int *)at = (int)strtol(text, &end, 10); return !blank && !*end;
    case I64: *(int64_t *)at = strtoll(text, &end, 10); return !blank && !*end;
    case U64: *(uint64_t *)at = blank ? GW_UNCOUNTED : strtoull(text, &end, 10); return !*end;
    case LONG: *(long *)at = blank ? -1 : strtol(text, &end, 10); return !*end;
    case SECONDS:
    case LOSS: *(double *)at = blank ? NAN : strtod(text, &end); return !*end;
    }
    return false;
}

static bool read_source(const char *text, gw_split_source *source) {
    for (int i = GW_SPLIT_NONE; i <= GW_SPLIT_CTR; i++)
        if (strcmp(text, source_name((gw_split_source)i)) == 0) {
            *source = (gw_split_source)i;
            return true;
        }
    return false;
}

static bool read_row(char *line, int counters, gw_batch_row *row) {
    char *rest = line, *cell;
    *row = gw_batch_row_blank();
    for (int i = 0; i < COLUMNS; i++)
        if (!(cell = strsep(&rest, ",")) ||
            !read_value(columns[i].form, cell, (char *)row + columns[i].at))
            return false;
    if (!(cell = strsep(&rest, ",")) || !read_source(cell, &row->source))
        return false;
    if (!strsep(&rest, ",")) /* whether it is clean follows from the others */
        return false;
    for (int i = 0; i < counters; i++)
        if (!(cell = strsep(&rest, ",")) || !read_value(SECONDS, cell, &row->counter[i]))
            return false;
    return !rest;
}

gw_err gw_columns_read(gw_columns_reader *r, gw_batch_row *row, bool *more) {
    char line[GW_COLUMNS_LINE];
    do {
        *more = fgets(line, sizeof line, r->in);
        size_t len = *more ? strlen(line) : 0;
        if (!*more)
            return ferror(r->in) ? gw_fail(GW_ERR_INPUT, "%s: cannot be read", r->name) : GW_OK;
        r->line++;
        if (len == 0 || line[len - 1] != '\n')
            return gw_fail(GW_ERR_INPUT, "%s: line %lld is cut off, or too long for a row", r->name,
                           (long long)r->line);
        line[len - 1] = '\0';
    } while (r->line == 1); /* the header */
    if (!read_row(line, r->counters, row))
        return gw_fail(GW_ERR_INPUT, "%s: line %lld is no row of a batch", r->name,
                       (long long)r->line);
    return GW_OK;
}
