/** The columns of batches.csv: one line of a table each, in the order of the file. Seconds unless
 *  the name says otherwise; what is not known is blank. */
#ifndef GW_PROF_COLUMNS_H
#define GW_PROF_COLUMNS_H

#include "prof/record.h"

#include <stdio.h>

/** Header line; the names of `counters` columns close it. */
void gw_columns_header(FILE *to, const char (*counter)[GW_COUNTER_NAME], int counters);

void gw_columns_row(FILE *to, const gw_batch_row *row, int counters);

#endif
