/** Options: one table describes them; parsing, help, `gradwire list` and run.json all come from it.
 *  The same tables serve the command line (--name value) and specs (name=value,name=value). */
#ifndef GW_BASE_ARGS_H
#define GW_BASE_ARGS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum gw_opt_type {
    GW_OPT_FLAG,   /* present or absent; in a spec name=0|1 */
    GW_OPT_INT,    /* whole number in [min, max] */
    GW_OPT_REAL,   /* number in [min, max], finite */
    GW_OPT_BYTES,  /* whole number with an optional K, M or G (powers of 1024), in [min, max] */
    GW_OPT_CHOICE, /* one of `choices` */
    GW_OPT_TEXT    /* any text */
} gw_opt_type;

typedef struct gw_opt {
    const char *name;
    gw_opt_type type;
    const char *def;     /* default, as a user would write it; NULL: unset */
    double min, max;     /* for numbers; both 0: unbounded */
    const char *choices; /* "a|b|c", for GW_OPT_CHOICE */
    const char *meta;    /* placeholder in the help, NULL: from the type */
    const char *help;    /* one line */
} gw_opt;                /* a table ends with {0} */

typedef struct gw_args gw_args;

/** New values for table `opts` (which must outlive them; NULL: no options), set to the defaults.
 *  Free with gw_args_free. */
gw_err gw_args_new(gw_args **out, const gw_opt *opts);
void gw_args_free(gw_args *args);

/** Set one value from text. `owner` is who the message names ("qsgd", "train").
 *  GW_ERR_USAGE: unknown name (with the nearest one), value malformed or out of range. */
gw_err gw_args_set(gw_args *args, const char *owner, const char *name, const char *value);

/** Set values from "name=value,name=value" (NULL or "": nothing to set). A value that holds commas
 *  itself stands in parentheses, which are dropped: "algo=(ring:chunk=64K,window=4)". */
gw_err gw_args_spec(gw_args *args, const char *owner, const char *text);

/** Set values from argv[1..argc): --name value, --name=value, --flag. Everything else is counted
 *  into *positional and moved to argv[1..]; NULL: positional words are refused. */
gw_err gw_args_argv(gw_args *args, const char *owner, int argc, char **argv, int *positional);

/** Values by name; asking for a name that the table lacks is a bug and aborts. */
bool gw_args_flag(const gw_args *args, const char *name);
long long gw_args_int(const gw_args *args, const char *name);
size_t gw_args_bytes(const gw_args *args, const char *name);
double gw_args_real(const gw_args *args, const char *name);
const char *gw_args_text(const gw_args *args, const char *name); /* NULL: unset, no default */
bool gw_args_given(const gw_args *args, const char *name);       /* set by the user */

bool gw_args_has(const gw_args *args, const char *name); /* the table has this name */

/** What stands for the value in the help, such as "N" or "on|off"; NULL: a flag. */
const char *gw_opt_meta(const gw_opt *o);

/** Write one line per option ("  --name META   help [default]") to `to`. */
void gw_args_help(const gw_opt *opts, const char *prefix, FILE *to);

/** The entry of `names[0..n)` most like `word`, or NULL when none comes near. */
const char *gw_nearest(const char *word, const char *const *names, size_t n);

#endif
