#include "base/args.h"

#include "base/mem.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct value {
    char *text;    /* as given or the default; NULL: unset */
    double number; /* of INT, BYTES and REAL */
    bool given;
} value;

struct gw_args {
    const gw_opt *opts;
    size_t n;
    value values[];
};

static size_t table_size(const gw_opt *opts) {
    size_t n = 0;
    while (opts && opts[n].name)
        n++;
    return n;
}

/* Levenshtein distance, for the short words that options are. */
static size_t distance(const char *a, const char *b) {
    enum { LONGEST = 63 };
    size_t la = strlen(a), lb = strlen(b), row[LONGEST + 1];
    if (la > LONGEST || lb > LONGEST)
        return SIZE_MAX;
    for (size_t j = 0; j <= lb; j++)
        row[j] = j;
    for (size_t i = 1; i <= la; i++) {
        size_t diag = row[0];
        row[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t best = diag + (a[i - 1] != b[j - 1]);
            diag = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[lb];
}

const char *gw_nearest(const char *word, const char *const *names, size_t n) {
    const char *best = NULL;
    size_t least = strlen(word) / 2 + 1; /* further away is no help */
    for (size_t i = 0; i < n; i++) {
        size_t d = distance(word, names[i]);
        if (d <= least && (!best || d < least)) {
            least = d;
            best = names[i];
        }
    }
    return best;
}

static gw_err unknown(const gw_args *args, const char *owner, const char *name) {
    const char *names[128];
    size_t n = 0;
    for (; n < args->n && n < 128; n++)
        names[n] = args->opts[n].name;
    if (n == 0)
        return gw_fail(GW_ERR_USAGE, "%s: unknown option '%s': it has no options", owner, name);
    const char *near = gw_nearest(name, names, n);
    if (near)
        return gw_fail(GW_ERR_USAGE, "%s: unknown option '%s': did you mean '%s'?", owner, name,
                       near);
    return gw_fail(GW_ERR_USAGE,
                   "%s: unknown option '%s': see 'gradwire --help' and 'gradwire list'", owner,
                   name);
}

static value *find(const gw_args *args, const char *name) {
    for (size_t i = 0; i < args->n; i++)
        if (strcmp(args->opts[i].name, name) == 0)
            return (value *)&args->values[i];
    return NULL;
}

static value *must_find(const gw_args *args, const char *name) {
    value *v = find(args, name);
    if (!v) {
        fprintf(stderr, "gradwire: bug: no option '%s' in this table\n", name);
        abort();
    }
    return v;
}

static gw_err out_of_range(const gw_opt *o, const char *owner, const char *text) {
    const char *what = o->type == GW_OPT_REAL ? "a number" : "a whole number";
    if (o->type == GW_OPT_BYTES)
        what = "a size in bytes (K, M, G allowed)";
    if (o->min == 0 && o->max == 0)
        return gw_fail(GW_ERR_USAGE, "%s: %s=%s: must be %s", owner, o->name, text, what);
    return gw_fail(GW_ERR_USAGE, "%s: %s=%s: must be %s from %.12g to %.12g", owner, o->name, text,
                   what, o->min, o->max);
}

static gw_err parse_number(const gw_opt *o, const char *owner, const char *text, double *out) {
    char *end = NULL;
    errno = 0;
    double x;
    if (o->type == GW_OPT_REAL) {
        x = strtod(text, &end);
    } else {
        long long whole = strtoll(text, &end, 10);
        x = (double)whole;
        if (o->type == GW_OPT_BYTES && end != text && *end) {
            static const char units[] = "KMG";
            const char *u = strchr(units, toupper((unsigned char)*end));
            if (u) {
                x *= (double)(1ull << (10 * (unsigned)(u - units + 1)));
                end++;
            }
        }
    }
    bool bounded = o->min != 0 || o->max != 0;
    if (end == text || *end || errno == ERANGE || !isfinite(x) || isspace((unsigned char)*text) ||
        (bounded && (x < o->min || x > o->max)) || (o->type != GW_OPT_REAL && fabs(x) > 0x1p53))
        return out_of_range(o, owner, text);
    *out = x;
    return GW_OK;
}

static gw_err check_choice(const gw_opt *o, const char *owner, const char *text) {
    size_t len = strlen(text);
    for (const char *c = o->choices; *c;) {
        size_t w = strcspn(c, "|");
        if (w == len && memcmp(c, text, w) == 0)
            return GW_OK;
        c += w + (c[w] == '|');
    }
    return gw_fail(GW_ERR_USAGE, "%s: %s=%s: must be one of %s", owner, o->name, text, o->choices);
}

static gw_err assign(const gw_opt *o, value *v, const char *owner, const char *text) {
    double number = 0;
    switch (o->type) {
    case GW_OPT_FLAG:
        if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
            return gw_fail(GW_ERR_USAGE, "%s: %s=%s: must be 0 or 1", owner, o->name, text);
        number = text[0] == '1';
        break;
    case GW_OPT_INT:
    case GW_OPT_REAL:
    case GW_OPT_BYTES: GW_TRY(parse_number(o, owner, text, &number)); break;
    case GW_OPT_CHOICE: GW_TRY(check_choice(o, owner, text)); break;
    case GW_OPT_TEXT: break;
    }
    char *copy = strdup(text);
    if (!copy)
        return gw_fail(GW_ERR_NOMEM, "%s: out of memory", owner);
    free(v->text);
    v->text = copy;
    v->number = number;
    return GW_OK;
}

gw_err gw_args_new(gw_args **out, const gw_opt *opts) {
    size_t n = table_size(opts);
    gw_args *a = NULL;
    GW_TRY(gw_alloc(&a, 1, sizeof *a + n * sizeof(value)));
    a->opts = opts;
    a->n = n;
    for (size_t i = 0; i < n; i++) {
        gw_err e = opts[i].def ? assign(&opts[i], &a->values[i], "default", opts[i].def) : GW_OK;
        if (e != GW_OK) {
            gw_args_free(a);
            return e;
        }
    }
    *out = a;
    return GW_OK;
}

void gw_args_free(gw_args *args) {
    if (!args)
        return;
    for (size_t i = 0; i < args->n; i++)
        free(args->values[i].text);
    free(args);
}

gw_err gw_args_set(gw_args *args, const char *owner, const char *name, const char *text) {
    value *v = find(args, name);
    if (!v)
        return unknown(args, owner, name);
    GW_TRY(assign(&args->opts[v - args->values], v, owner, text));
    v->given = true;
    return GW_OK;
}

/* The item of a list that begins at *rest, which moves past it: up to the next comma that is not
 * inside parentheses. NULL: there is none left. */
static char *next_item(char **rest) {
    char *item = *rest, *p = item;
    int depth = 0;
    if (!item)
        return NULL;
    for (; *p && (*p != ',' || depth > 0); p++)
        depth += *p == '(' ? 1 : *p == ')' && depth > 0 ? -1 : 0;
    *rest = *p ? p + 1 : NULL;
    *p = '\0';
    return item;
}

/* "(text)" stands for text. */
static char *bare(char *text) {
    size_t n = strlen(text);
    if (n < 2 || text[0] != '(' || text[n - 1] != ')')
        return text;
    text[n - 1] = '\0';
    return text + 1;
}

gw_err gw_args_spec(gw_args *args, const char *owner, const char *text) {
    if (!text || !*text)
        return GW_OK;
    char *copy = strdup(text), *rest = copy, *item;
    if (!copy)
        return gw_fail(GW_ERR_NOMEM, "%s: out of memory", owner);
    gw_err e = GW_OK;
    while (e == GW_OK && (item = next_item(&rest)) != NULL) {
        char *eq = strchr(item, '=');
        if (!eq || eq == item) {
            e = gw_fail(GW_ERR_USAGE, "%s: '%s': expected name=value", owner, item);
            break;
        }
        *eq = '\0';
        e = gw_args_set(args, owner, item, bare(eq + 1));
    }
    free(copy);
    return e;
}

/* One "--name[=value]" at argv[i]; *used tells how many words it took. */
static gw_err take_option(gw_args *args, const char *owner, char **argv, int i, int argc,
                          int *used) {
    char *name = argv[i] + 2, *eq = strchr(name, '=');
    char key[64];
    size_t len = eq ? (size_t)(eq - name) : strlen(name);
    if (len >= sizeof key)
        return gw_fail(GW_ERR_USAGE, "%s: unknown option '%.40s...'", owner, name);
    memcpy(key, name, len);
    key[len] = '\0';
    value *v = find(args, key);
    if (!v)
        return unknown(args, owner, key);
    *used = 1;
    if (args->opts[v - args->values].type == GW_OPT_FLAG)
        return gw_args_set(args, owner, key, eq ? eq + 1 : "1");
    if (eq)
        return gw_args_set(args, owner, key, eq + 1);
    if (i + 1 >= argc)
        return gw_fail(GW_ERR_USAGE, "%s: --%s needs a value", owner, key);
    *used = 2;
    return gw_args_set(args, owner, key, argv[i + 1]);
}

gw_err gw_args_argv(gw_args *args, const char *owner, int argc, char **argv, int *positional) {
    int kept = 0;
    for (int i = 1; i < argc;) {
        int used = 1;
        if (strncmp(argv[i], "--", 2) == 0 && argv[i][2]) {
            GW_TRY(take_option(args, owner, argv, i, argc, &used));
        } else if (positional) {
            argv[1 + kept++] = argv[i];
        } else {
            return gw_fail(GW_ERR_USAGE, "%s: unexpected word '%s': options start with --", owner,
                           argv[i]);
        }
        i += used;
    }
    if (positional)
        *positional = kept;
    return GW_OK;
}

bool gw_args_flag(const gw_args *args, const char *name) {
    return must_find(args, name)->number != 0;
}

long long gw_args_int(const gw_args *args, const char *name) {
    return (long long)must_find(args, name)->number;
}

size_t gw_args_bytes(const gw_args *args, const char *name) {
    return (size_t)must_find(args, name)->number;
}

double gw_args_real(const gw_args *args, const char *name) {
    return must_find(args, name)->number;
}

const char *gw_args_text(const gw_args *args, const char *name) {
    return must_find(args, name)->text;
}

bool gw_args_has(const gw_args *args, const char *name) {
    return find(args, name);
}

bool gw_args_given(const gw_args *args, const char *name) {
    return must_find(args, name)->given;
}

const char *gw_opt_meta(const gw_opt *o) {
    static const char *const metas[] = {NULL, "N", "X", "BYTES", NULL, "TEXT"};
    return o->meta ? o->meta : o->choices ? o->choices : metas[o->type];
}

void gw_args_help(const gw_opt *opts, const char *prefix, FILE *to) {
    for (const gw_opt *o = opts; o && o->name; o++) {
        const char *meta = gw_opt_meta(o);
        char left[96];
        const char *join = !meta ? "" : *prefix ? " " : "=";
        snprintf(left, sizeof left, "%s%s%s%s", prefix, o->name, join, meta ? meta : "");
        fprintf(to, "  %-34s %s", left, o->help);
        if (o->def && *o->def && o->type != GW_OPT_FLAG)
            fprintf(to, " [%s]", o->def);
        fputc('\n', to);
    }
}
