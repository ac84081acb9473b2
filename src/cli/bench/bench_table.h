/** A benchmark's table: says once how a row is printed and under which keys it is kept. */
#ifndef GW_CLI_BENCH_BENCH_TABLE_H
#define GW_CLI_BENCH_BENCH_TABLE_H

#include <jansson.h>

typedef struct gw_bench_table {
    /** A printed row, its cells as in printf: s text, d whole number, f and e real; u and m
     *  seconds in microseconds and milliseconds, p a share in percent. */
    const char *form;
    const char *heads; /* "bytes|codec|..": of the printed cells */
    const char *kept;  /* types of further cells, which are not printed; b: true or false */
    const char *keys;  /* of all cells, in JSON; "" between two bars: that cell is not kept */
} gw_bench_table;

/** The cells of a row, in order: its texts, its numbers. What is NULL or not finite is absent:
 *  printed as '-', kept as null. */
#define GW_TEXTS(...)   ((const char *const[]){__VA_ARGS__})
#define GW_NUMBERS(...) ((const double[]){__VA_ARGS__})

/** Print the heads, behind an empty line. */
void gw_bench_head(const gw_bench_table *t);

/** Print a row, and append it to `rows` unless they are NULL; returns what was appended, which
 *  belongs to them. Blanks at a line's end are left out. */
json_t *gw_bench_row(const gw_bench_table *t, json_t *rows, const char *const *texts,
                     const double *numbers);

#endif
