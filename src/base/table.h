/** CSV tables: a row is a struct, its columns are a list, and one writer and one reader serve all
 *  tables. Unknown values are blank, never 0. The first line of a file is the header. */
#ifndef GW_BASE_TABLE_H
#define GW_BASE_TABLE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/** What a cell holds, and which value is blank. */
typedef enum gw_cell {
    GW_CELL_INT,   /* int */
    GW_CELL_I64,   /* int64_t */
    GW_CELL_U64,   /* uint64_t; UINT64_MAX: blank */
    GW_CELL_COUNT, /* long; below 0: blank */
    GW_CELL_REAL,  /* double, with `digits` digits; NaN: blank */
    GW_CELL_HASH,  /* uint32_t, 8 hexadecimal digits */
    GW_CELL_NAME,  /* int, an index of `names` */
    GW_CELL_TEXT,  /* char[], as it is; read back if `digits` says how many */
    GW_CELL_QUOTED /* const char *, in quotation marks */
} gw_cell;

typedef struct gw_column {
    const char *name;
    gw_cell cell;
    size_t at; /* in the row */
    int digits;
    const char *const *names; /* closed by a NULL */
} gw_column;

typedef struct gw_table {
    const char *file; /* its name in a run's folder */
    size_t row;       /* bytes of one */
    int columns;
    const gw_column *column;
} gw_table;

/** Columns of rows of type `type`, and a table of an array of them. */
#define GW_COLUMN(type, title, form, field)                                                        \
    { .name = title, .cell = GW_CELL_##form, .at = offsetof(type, field) }
#define GW_COLUMN_REAL(type, title, field, n)                                                      \
    { .name = title, .cell = GW_CELL_REAL, .at = offsetof(type, field), .digits = n }
#define GW_COLUMN_NAME(type, title, field, list)                                                   \
    { .name = title, .cell = GW_CELL_NAME, .at = offsetof(type, field), .names = list }
#define GW_COLUMN_TEXT(type, title, field)                                                         \
    {                                                                                              \
        .name = title, .cell = GW_CELL_TEXT, .at = offsetof(type, field),                          \
        .digits = sizeof((type *)0)->field                                                         \
    }
#define GW_TABLE(name, type, array)                                                                \
    { name, sizeof(type), sizeof(array) / sizeof *(array), array }

enum { GW_TABLE_LINE = 4096 }; /* longest line */

/** Write the header. */
void gw_table_header(const gw_table *t, FILE *to);

/** Read the next line of `in`; return whether it is the table's header. */
bool gw_table_headed(const gw_table *t, FILE *in);

/** Write rows[0..n). `to` NULL: do nothing. GW_ERR_IO: this or an earlier write failed. */
gw_err gw_table_write(const gw_table *t, FILE *to, const void *rows, size_t n);

/** Return the number in the column `name` of *row; NaN: it is blank or no number, or there is no
 *  such column. */
double gw_table_number(const gw_table *t, const void *row, const char *name);

/** Reads back rows that gw_table_write wrote. */
typedef struct gw_table_reader {
    const gw_table *table; /* without GW_CELL_HASH and _QUOTED */
    FILE *in;              /* at the header */
    const char *path;      /* for messages */
    int64_t line;          /* number of the last line read, from 1; 0: none */
} gw_table_reader;

/** Read the next row, setting only the columns in *row. *more false: there is none. GW_ERR_INPUT:
 *  another header, or an invalid line. */
gw_err gw_table_read(gw_table_reader *r, void *row, bool *more);

#endif
