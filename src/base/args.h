/** Options: one table describes them; parsing, help, `gradwire list` and run.json all come from it.
 *  The same tables serve the command line (--name value) and the arguments of specs. */
#ifndef GW_BASE_ARGS_H
#define GW_BASE_ARGS_H

#include "base/spec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A row of a table may leave out its last members, which are then 0. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

typedef enum gw_opt_type {
    GW_OPT_FLAG,   /* present or absent; in a spec name=0|1 */
    GW_OPT_INT,    /* whole number in [min, max] */
    GW_OPT_REAL,   /* number in [min, max], finite */
    GW_OPT_BYTES,  /* whole number with an optional K, M or G (powers of 1024), in [min, max] */
    GW_OPT_CHOICE, /* one of `choices` */
    GW_OPT_TEXT,   /* any text */
    GW_OPT_PATH,   /* any text that is not empty */
    GW_OPT_TIME,   /* seconds, or a number with us, ms, s, min or h; in [min, max] seconds */
    GW_OPT_EVERY,  /* a whole number of steps, or such a time with its unit, in [min, max] */
    GW_OPT_LIST,   /* whole numbers in [min, max], separated by commas */
    GW_OPT_SPEC,   /* a spec (base/spec.h) of one entry; "", if the default is "": unset */
    GW_OPT_SPECS,  /* a list of them, separated by semicolons; likewise */
    GW_OPT_COMMAS, /* a list of them, separated by semicolons or commas; likewise */
    GW_OPT_CHAIN,  /* a spec of one entry, or a chain of several; likewise */
    GW_OPT_FILE,   /* as PATH: a file that every rank reads, or a word for none */
    GW_OPT_STEPS,  /* as INT: so many steps, after which something changes; 0: it never does */
    GW_OPT_PERIOD  /* as INT: something happens in each step whose number is a multiple of it */
} gw_opt_type;

/** The value of an EVERY: steps or, if these are 0, seconds. */
typedef struct gw_count_time {
    int64_t count;
    double s;
} gw_count_time;

typedef struct gw_opt {
    const char *name;
    gw_opt_type type;
    const char *def;     /* default, as a user would write it; NULL: unset */
    double min, max;     /* for numbers; both 0: unbounded */
    const char *choices; /* "a|b|c", for GW_OPT_CHOICE; for GW_OPT_INT a word that stands for 0 */
    const char *meta;    /* placeholder in the help, NULL: from the type */
    const char *help;    /* one line */
    size_t into, size;   /* where gw_args_fill puts it: GW_OPT_INTO; 0: nowhere */
    const char *group;   /* heading in the help, above this and the next options; NULL: none */
} gw_opt;                /* a table ends with {0} */

/** The last columns of a gw_opt whose value goes into `member` of a struct: a bool for FLAG; double
 *  for REAL, TIME; int, int64_t or the like for INT, BYTES; gw_count_time for EVERY; const char *
 *  for TEXT, PATH, FILE and CHOICE; const gw_spec * for SPEC, SPECS, COMMAS and CHAIN. An int or an
 *  enum gets a CHOICE's place, a bool whether that is not 0. For a LIST, an int gets the count, and
 *  the ints behind it the numbers. */
#define GW_OPT_INTO(type, member) offsetof(type, member) + 1, sizeof(((type *)NULL)->member)

/** Return whether its value is a whole number without a unit: INT, or what is as INT. */
bool gw_opt_is_int(const gw_opt *o);

/** An option that needs another one, or excludes it. */
typedef struct gw_rule {
    const char *option, *value; /* value: "a|b": one of these, "!a|b": none; NULL: it was given */
    bool needs;                 /* else they exclude each other */
    const char *other, *other_value;
    const char *why;
} gw_rule; /* a table ends with {0} */

typedef struct gw_args gw_args;

/** Make values for table `opts` (which must outlive them; NULL: no options), set to the defaults.
 *  Free with gw_args_free. */
gw_err gw_args_new(gw_args **out, const gw_opt *opts);
void gw_args_free(gw_args *args);

/** Set one value from text. Messages name `owner` ("qsgd", "train").
 *  GW_ERR_USAGE: unknown name (with the nearest one), value malformed or out of range. */
gw_err gw_args_set(gw_args *args, const char *owner, const char *name, const char *text);

/** Make values for table `opts`, set from the arguments of `spec`. Errors as gw_args_set. */
gw_err gw_args_of(gw_args **out, const gw_opt *opts, const char *owner, const gw_spec *spec);

/** Set values from argv[1..argc): --name value, --name=value, --flag. Count everything else in
 *  *positional and move it to argv[1..]; NULL: refuse positional words. */
gw_err gw_args_argv(gw_args *args, const char *owner, int argc, char **argv, int *positional);

/** Return the table. */
const gw_opt *gw_args_opts(const gw_args *args);

/** Put each value that has a place into *config; texts and trees live as long as `args`. */
void gw_args_fill(const gw_args *args, void *config);

/** Check the rules. GW_ERR_USAGE: the first rule that the values break, and what to do. */
gw_err gw_args_check(const gw_args *args, const gw_rule *rules, const char *owner);

/** Return values by name; a name that the table lacks is a bug and aborts. */
bool gw_args_flag(const gw_args *args, const char *name);
long long gw_args_int(const gw_args *args, const char *name);
size_t gw_args_bytes(const gw_args *args, const char *name);
double gw_args_real(const gw_args *args, const char *name);
const char *gw_args_text(const gw_args *args, const char *name); /* NULL: unset, no default */
/** Return the tree of a GW_OPT_SPEC, SPECS or COMMAS; it lives as long as `args`; NULL: unset. */
const gw_spec *gw_args_spec(const gw_args *args, const char *name);
bool gw_args_given(const gw_args *args, const char *name); /* set by the user */

bool gw_args_has(const gw_args *args, const char *name); /* the table has this name */

/** Return the placeholder of the value in the help, such as "N" or "on|off"; NULL: a flag. */
const char *gw_opt_meta(const gw_opt *o);

/** Write "  --name META   help [default]" for each option to `to`, under the headings of groups: as
 *  wide as the terminal (COLUMNS, if set), or 80 columns. */
void gw_args_help(const gw_opt *opts, const char *prefix, FILE *to);

/** Return GW_ERR_USAGE: `word` is no `kind` of `owner` (NULL: of the program). The message suggests
 *  the entry of names[0..n) most like it; if none is near, it ends in `otherwise`. */
gw_err gw_unknown(const char *owner, const char *kind, const char *word, const char *const *names,
                  size_t n, const char *otherwise);

#endif
