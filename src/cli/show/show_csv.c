#include "cli/show/show_csv.h"

#include "base/file.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 1 << 16 }; /* no header of ours comes near */

/* Read a line without its end; one that does not end was cut off. */
static gw_err read_line(gw_show_csv *csv, bool *more) {
    *more = fgets(csv->line, LINE, csv->in) != NULL;
    if (!*more)
        return ferror(csv->in) ? gw_fail(GW_ERR_INPUT, "show: %s: cannot be read", csv->path)
                               : GW_OK;
    csv->at++;
    size_t len = strlen(csv->line);
    if (len == 0 || csv->line[len - 1] != '\n')
        return gw_fail(
            GW_ERR_INPUT,
            "show: %s, line %lld: ends early: the file is half-written, or none of a run",
            csv->path, csv->at);
    csv->line[len - 1] = '\0';
    return GW_OK;
}

static int count_columns(const char *line) {
    int n = 1;
    for (const char *c = line; *c; c++)
        n += *c == ',';
    return n;
}

static int find(const char *const *wanted, const char *name) {
    for (int i = 0; wanted[i]; i++)
        if (strcmp(wanted[i], name) == 0)
            return i;
    return -1;
}

static gw_err read_header(gw_show_csv *csv) {
    bool more;
    GW_TRY(read_line(csv, &more));
    if (!more)
        return gw_fail(GW_ERR_INPUT, "show: %s: empty: no header, no rows", csv->path);
    csv->columns = count_columns(csv->line);
    GW_TRY(gw_alloc(&csv->what, (size_t)csv->columns, sizeof *csv->what));
    char *rest = csv->line;
    for (int i = 0; i < csv->columns; i++)
        csv->what[i] = find(csv->wanted, strsep(&rest, ","));
    return GW_OK;
}

gw_err gw_show_csv_open(gw_show_csv *csv, const char *dir, const char *const *wanted) {
    *csv = (gw_show_csv){.wanted = wanted};
    size_t len;
    if (asprintf(&csv->path, "%s/batches.csv", dir) < 0)
        return gw_fail(GW_ERR_NOMEM, "show: out of memory");
    gw_err e = gw_alloc(&csv->line, LINE, 1);
    if (e == GW_OK)
        e = gw_file_open(csv->path, &csv->in, &len);
    if (e == GW_OK)
        e = read_header(csv);
    if (e != GW_OK)
        gw_show_csv_close(csv);
    return e;
}

static gw_err read_value(const gw_show_csv *csv, const char *text, int what, double *value) {
    char *end;
    *value = *text ? strtod(text, &end) : NAN;
    if (*text && (*end || !isfinite(*value)))
        return gw_fail(GW_ERR_INPUT, "show: %s, line %lld, %s: '%s' is no number", csv->path,
                       csv->at, csv->wanted[what], text);
    return GW_OK;
}

gw_err gw_show_csv_next(gw_show_csv *csv, double *values, bool *more) {
    GW_TRY(read_line(csv, more));
    if (!*more)
        return GW_OK;
    int n = count_columns(csv->line);
    if (n != csv->columns)
        return gw_fail(GW_ERR_INPUT, "show: %s, line %lld: %d fields under %d columns", csv->path,
                       csv->at, n, csv->columns);
    for (int i = 0; csv->wanted[i]; i++)
        values[i] = NAN;
    char *rest = csv->line;
    for (int i = 0; i < n; i++) {
        const char *text = strsep(&rest, ",");
        if (csv->what[i] >= 0)
            GW_TRY(read_value(csv, text, csv->what[i], &values[csv->what[i]]));
    }
    return GW_OK;
}

void gw_show_csv_close(gw_show_csv *csv) {
    if (csv->in)
        fclose(csv->in);
    free(csv->path);
    free(csv->line);
    free(csv->what);
    *csv = (gw_show_csv){0};
}
