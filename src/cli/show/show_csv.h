/** The rows of a batches.csv, one after another, by the names of their columns: memory for one
 * line, however long the file is. */
#ifndef GW_CLI_SHOW_SHOW_CSV_H
#define GW_CLI_SHOW_SHOW_CSV_H

#include "base/err.h"

#include <stdbool.h>
#include <stdio.h>

typedef struct gw_show_csv {
    char *path, *line;
    FILE *in;
    long long at;              /* number of the line, from 1 */
    const char *const *wanted; /* names; NULL ends them */
    int *what;                 /* for each column of the file: which of the wanted it is, or -1 */
    int columns;
} gw_show_csv;

/** Open DIR/batches.csv; `wanted` is kept. GW_ERR_INPUT: no such file, or no header. */
gw_err gw_show_csv_open(gw_show_csv *csv, const char *dir, const char *const *wanted);

/** Next row: values[i] is what column wanted[i] holds, NaN where it is blank or the file has no
 * such column. *more false: there is no further row. GW_ERR_INPUT: a line that is cut off, or is no
 * row of numbers. */
gw_err gw_show_csv_next(gw_show_csv *csv, double *values, bool *more);

void gw_show_csv_close(gw_show_csv *csv);

#endif
