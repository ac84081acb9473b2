#include "base/table.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

void gw_table_header(const gw_table *t, FILE *to) {
    for (int i = 0; i < t->columns; i++)
        fprintf(to, "%s%s", i ? "," : "", t->column[i].name);
    fputc('\n', to);
}

bool gw_table_headed(const gw_table *t, FILE *in) {
    char line[GW_TABLE_LINE], *rest = line, *cell;
    size_t len = fgets(line, sizeof line, in) ? strlen(line) : 0;
    if (len == 0 || line[len - 1] != '\n')
        return false;
    line[len - 1] = '\0';
    for (int i = 0; i < t->columns; i++)
        if (!(cell = strsep(&rest, ",")) || strcmp(cell, t->column[i].name) != 0)
            return false;
    return !rest;
}

static void table_cell(FILE *to, const gw_column *c, const void *at) {
    switch (c->cell) {
    case GW_CELL_INT: fprintf(to, "%d", *(const int *)at); break;
    case GW_CELL_I64: fprintf(to, "%" PRId64, *(const int64_t *)at); break;
    case GW_CELL_U64:
        if (*(const uint64_t *)at != UINT64_MAX)
            fprintf(to, "%" PRIu64, *(const uint64_t *)at);
        break;
    case GW_CELL_COUNT:
        if (*(const long *)at >= 0)
            fprintf(to, "%ld", *(const long *)at);
        break;
    case GW_CELL_REAL:
        if (!isnan(*(const double *)at))
            fprintf(to, "%.*g", c->digits, *(const double *)at);
        break;
    case GW_CELL_HASH: fprintf(to, "%08" PRIx32, *(const uint32_t *)at); break;
    case GW_CELL_NAME: fputs(c->names[*(const int *)at], to); break;
    case GW_CELL_TEXT: fputs(at, to); break;
    case GW_CELL_QUOTED: fprintf(to, "\"%s\"", *(const char *const *)at); break;
    }
}

gw_err gw_table_write(const gw_table *t, FILE *to, const void *rows, size_t n) {
    if (!to)
        return GW_OK;
    for (size_t r = 0; r < n; r++)
        for (int i = 0; i < t->columns; i++) {
            const gw_column *c = &t->column[i];
            table_cell(to, c, (const char *)rows + r * t->row + c->at);
            fputc(i + 1 < t->columns ? ',' : '\n', to);
        }
    return ferror(to) ? gw_fail(GW_ERR_IO, "cannot write %s: is the disk full?", t->file) : GW_OK;
}

double gw_table_number(const gw_table *t, const void *row, const char *name) {
    int i = 0;
    while (i < t->columns && strcmp(t->column[i].name, name) != 0)
        i++;
    if (i == t->columns)
        return NAN;
    const void *at = (const char *)row + t->column[i].at;
    switch (t->column[i].cell) {
    case GW_CELL_INT: return *(const int *)at;
    case GW_CELL_I64: return (double)*(const int64_t *)at;
    case GW_CELL_U64:
        return *(const uint64_t *)at == UINT64_MAX ? NAN : (double)*(const uint64_t *)at;
    case GW_CELL_COUNT: return *(const long *)at < 0 ? NAN : (double)*(const long *)at;
    case GW_CELL_REAL: return *(const double *)at;
    default: return NAN;
    }
}

/* ---- reading ---- */

/* The whole text as a number from `least` to `most`. */
static bool table_signed(const char *text, int64_t least, int64_t most, int64_t *value) {
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return *text && !*end && errno == 0 && *value >= least && *value <= most;
}

static bool table_value(const gw_column *c, const char *text, void *at) {
    int64_t value = -1;
    bool blank = !*text, valid;
    const char *digits = text + (*text == '-');
    char *end;
    if (c->cell == GW_CELL_NAME) {
        int i = 0;
        while (c->names[i] && strcmp(text, c->names[i]) != 0)
            i++;
        *(int *)at = i;
        return c->names[i];
    }
    if (c->cell == GW_CELL_TEXT)
        return snprintf(at, (size_t)c->digits, "%s", text) < c->digits;
    /* strtod and its like would take blanks, a plus sign, words. */
    if (!blank && !isdigit((unsigned char)*digits) &&
        !(c->cell == GW_CELL_REAL && strcmp(digits, "inf") == 0))
        return false;
    errno = 0;
    switch (c->cell) {
    case GW_CELL_INT:
        valid = table_signed(text, INT_MIN, INT_MAX, &value);
        *(int *)at = (int)value;
        return valid;
    case GW_CELL_I64: return table_signed(text, INT64_MIN, INT64_MAX, at);
    case GW_CELL_U64:
        *(uint64_t *)at = blank ? UINT64_MAX : strtoull(text, &end, 10);
        return blank || (*text != '-' && !*end && errno == 0 && *(uint64_t *)at != UINT64_MAX);
    case GW_CELL_COUNT:
        valid = blank || table_signed(text, 0, LONG_MAX, &value);
        *(long *)at = (long)value;
        return valid;
    case GW_CELL_REAL: *(double *)at = blank ? NAN : strtod(text, &end); return blank || !*end;
    default: return false;
    }
}

gw_err gw_table_read(gw_table_reader *r, void *row, bool *more) {
    char line[GW_TABLE_LINE];
    if (r->line == 0 && !gw_table_headed(r->table, r->in))
        return gw_fail(GW_ERR_INPUT, "%s: its header is not that of %s", r->path, r->table->file);
    r->line += r->line == 0;
    *more = fgets(line, sizeof line, r->in);
    if (!*more)
        return ferror(r->in) ? gw_fail(GW_ERR_INPUT, "%s: cannot be read", r->path) : GW_OK;
    r->line++;
    size_t len = strlen(line);
    if (len == 0 || line[len - 1] != '\n')
        return gw_fail(GW_ERR_INPUT, "%s, line %" PRId64 ": cut off, or too long", r->path,
                       r->line);
    line[len - 1] = '\0';
    const gw_table *t = r->table;
    char *rest = line, *cell = line;
    for (int i = 0; i < t->columns && (cell = strsep(&rest, ",")); i++)
        if (!table_value(&t->column[i], cell, (char *)row + t->column[i].at))
            return gw_fail(GW_ERR_INPUT, "%s, line %" PRId64 ": invalid %s '%.40s'", r->path,
                           r->line, t->column[i].name, cell);
    return cell && !rest ? GW_OK
                         : gw_fail(GW_ERR_INPUT, "%s, line %" PRId64 ": must have %d fields",
                                   r->path, r->line, t->columns);
}
