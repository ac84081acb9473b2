/** The columns of batches.csv: one line of a table each, in the order of the file. Seconds unless
 *  the name says otherwise; what is not known is blank. */
#ifndef GW_PROF_COLUMNS_H
#define GW_PROF_COLUMNS_H

#include "base/err.h"
#include "prof/batch_row.h"

#include <stdio.h>

enum { GW_COLUMNS_LINE = 4096 }; /* longest line */

/** Header line, without its '\n'; the names of `counters` columns close it. */
void gw_columns_header(char line[GW_COLUMNS_LINE], const char (*counter)[GW_COUNTER_NAME],
                       int counters);

void gw_columns_row(FILE *to, const gw_batch_row *row, int counters);

/** Rows that gw_columns_row wrote, read back. */
typedef struct gw_columns_reader {
    FILE *in; /* at the header, which is skipped */
    const char *name;
    int counters;
    int64_t line; /* the last one's number, from 1; 0: none is read */
} gw_columns_reader;

/** The next row; what is blank is unknown again (NaN, GW_UNCOUNTED, -1). *more false: there is
 * none. GW_ERR_INPUT: a line that is no row. */
gw_err gw_columns_read(gw_columns_reader *r, gw_batch_row *row, bool *more);

#endif
