/* Options: their tables, the values that a command line gives them, and their help. */
#include "base/args.h"

#include "base/mem.h"
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

/* number: of FLAG, INT, REAL, BYTES; seconds; the place of a CHOICE; NaN: the text is none.
 * count: steps of EVERY (0: a time), how many a LIST has. */
typedef struct parsed {
    double number;
    int64_t count;
} parsed;

typedef struct value {
    char *text; /* as given or the default; NULL: unset */
    parsed is;
    gw_spec *spec; /* of SPEC, SPECS and COMMAS; NULL: unset */
    bool given;
} value;

struct gw_args {
    const gw_opt *opts;
    size_t n;
    value values[];
};

/* Levenshtein distance, for the short words that options are. */
static size_t args_distance(const char *a, const char *b) {
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

gw_err gw_unknown(const char *owner, const char *kind, const char *word, const char *const *names,
                  size_t n, const char *otherwise) {
    const char *near = NULL, *colon = owner ? ": " : "";
    size_t least = strlen(word) / 2 + 1; /* further away is no help */
    for (size_t i = 0; i < n; i++) {
        size_t d = args_distance(word, names[i]);
        if (d <= least && (!near || d < least)) {
            least = d;
            near = names[i];
        }
    }
    owner = owner ? owner : "";
    return near ? gw_fail(GW_ERR_USAGE, "%s%sunknown %s '%s': did you mean '%s'?", owner, colon,
                          kind, word, near)
                : gw_fail(GW_ERR_USAGE, "%s%sunknown %s '%s': %s", owner, colon, kind, word,
                          otherwise);
}

static gw_err args_unknown(const gw_args *args, const char *owner, const char *name) {
    const char *names[128];
    size_t n = 0;
    for (; n < args->n && n < 128; n++)
        names[n] = args->opts[n].name;
    return gw_unknown(owner, "option", name, names, n,
                      n ? "see 'gradwire --help' and 'gradwire list'" : "it has no options");
}

static value *args_find(const gw_args *args, const char *name) {
    for (size_t i = 0; i < args->n; i++)
        if (strcmp(args->opts[i].name, name) == 0)
            return (value *)&args->values[i];
    return NULL;
}

static value *args_must_find(const gw_args *args, const char *name) {
    value *v = args_find(args, name);
    if (!v) {
        fprintf(stderr, "gradwire: bug: no option '%s' in this table\n", name);
        abort();
    }
    return v;
}

/* ---- one value ---- */

/* What a value must be. */
static const char *const kinds[] = {
    [GW_OPT_FLAG] = "0 or 1",
    [GW_OPT_INT] = "a whole number",
    [GW_OPT_REAL] = "a number",
    [GW_OPT_BYTES] = "a size in bytes (K, M, G allowed)",
    [GW_OPT_TIME] = "a time in seconds, or with its unit (us, ms, s, min, h),",
    [GW_OPT_EVERY] = "a number of steps, e.g. 500, or a time with its unit (s, min, h), e.g. 30s,",
    [GW_OPT_LIST] = "whole numbers with commas between,",
    [GW_OPT_STEPS] = "a whole number",
    [GW_OPT_PERIOD] = "a whole number"};

/* A number with a unit of time, in seconds; with `bare` it may lack the unit. NaN: neither. */
static double args_seconds(const char *text, bool bare) {
    static const struct {
        const char *unit;
        double s;
    } units[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}, {"", 1}};
    char *end;
    double x = strtod(text, &end);
    for (size_t i = 0; i + !bare < sizeof units / sizeof *units; i++)
        if (end != text && strcmp(end, units[i].unit) == 0)
            return x * units[i].s;
    return NAN;
}

/* NaN: there is none, or not all of the text is one. */
static double args_whole(const char *text, const char *units) {
    char *end;
    errno = 0;
    double x = (double)strtoll(text, &end, 10);
    const char *u = end != text && *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (u)
        x *= (double)(1ull << (10 * (unsigned)(u - units + 1)));
    return end == text || end[u != NULL] || errno == ERANGE || fabs(x) > 0x1p53 ? NAN : x;
}

/* The first that is not in range ends it, with NaN. False: there are too many. */
static bool args_read_list(const gw_opt *o, const char *text, parsed *v, int *list) {
    size_t most = o->size / sizeof(int) - 1; /* the first of them says how many there are */
    while (*text && !isnan(v->number)) {
        char *end;
        long x = strtol(text, &end, 10);
        bool is = end != text && (!*end || (*end == ',' && end[1]));
        v->number = is && (double)x >= o->min && (double)x <= o->max ? 0 : NAN;
        if (list)
            list[v->count] = (int)x;
        v->count++;
        text = *end ? end + 1 : end;
    }
    return (size_t)v->count <= most;
}

static void args_read_number(const gw_opt *o, const char *text, parsed *v) {
    double steps;
    char *end;
    switch (o->type) {
    case GW_OPT_FLAG:
        v->number = strcmp(text, "0") == 0 ? 0 : strcmp(text, "1") == 0 ? 1 : NAN;
        break;
    case GW_OPT_REAL:
        v->number = strtod(text, &end);
        if (end == text || *end)
            v->number = NAN;
        break;
    case GW_OPT_BYTES: v->number = args_whole(text, "KMG"); break;
    case GW_OPT_TIME: v->number = args_seconds(text, true); break;
    case GW_OPT_EVERY:
        steps = args_whole(text, "");
        v->count = steps >= 1 ? (int64_t)steps : 0;
        v->number = v->count ? 0 : isnan(steps) ? args_seconds(text, false) : NAN;
        break;
    case GW_OPT_CHOICE:
        for (const char *c = o->choices; *c; v->number++) {
            size_t w = strcspn(c, "|");
            if (w == strlen(text) && memcmp(c, text, w) == 0)
                return;
            c += w + (c[w] == '|');
        }
        v->number = NAN;
        break;
    default: v->number = args_whole(text, "");
    }
}

static bool args_is_text(const gw_opt *o) {
    return o->type == GW_OPT_TEXT || o->type == GW_OPT_PATH || o->type == GW_OPT_FILE;
}

static bool args_is_spec(const gw_opt *o) {
    return o->type >= GW_OPT_SPEC && o->type <= GW_OPT_CHAIN;
}

static gw_err args_read_value(const gw_opt *o, const char *owner, const char *text, parsed *out,
                              int *list) {
    *out = (parsed){0};
    if (args_is_text(o) || args_is_spec(o))
        return GW_OK;
    if (o->type != GW_OPT_CHOICE && o->choices && strcmp(text, o->choices) == 0)
        return GW_OK;
    if (o->type != GW_OPT_LIST)
        args_read_number(o, text, out);
    else if (!args_read_list(o, text, out, list))
        return gw_fail(GW_ERR_USAGE, "%s: %s=%s: too many numbers: at most %zu", owner, o->name,
                       text, o->size / sizeof(int) - 1);
    if (o->type == GW_OPT_CHOICE)
        return isfinite(out->number) ? GW_OK
                                     : gw_fail(GW_ERR_USAGE, "%s: %s=%s: must be one of %s", owner,
                                               o->name, text, o->choices);
    bool counts = o->type == GW_OPT_LIST || (o->type == GW_OPT_EVERY && out->count > 0);
    bool bounded = (o->min != 0 || o->max != 0) && !counts;
    if (isfinite(out->number) && !isspace((unsigned char)*text) &&
        !(bounded && (out->number < o->min || out->number > o->max)))
        return GW_OK;
    if (o->min == 0 && o->max == 0)
        return gw_fail(GW_ERR_USAGE, "%s: %s=%s: must be %s", owner, o->name, text, kinds[o->type]);
    return gw_fail(GW_ERR_USAGE, "%s: %s=%s: must be %s from %.12g to %.12g", owner, o->name, text,
                   kinds[o->type], o->min, o->max);
}

static gw_err args_assign(const gw_opt *o, value *v, const char *owner, const char *text) {
    parsed read;
    gw_spec *spec = NULL;
    GW_TRY(gw_text_name(owner, o->name, text));
    GW_TRY(args_read_value(o, owner, text, &read, NULL));
    if (args_is_spec(o) && (*text || !o->def || *o->def))
        GW_TRY(gw_spec_parse(&spec, owner, o->name, text, (gw_spec_form)(o->type - GW_OPT_SPEC)));
    char *copy = strdup(text);
    if (!copy) {
        gw_spec_free(spec);
        return gw_fail(GW_ERR_NOMEM, "%s: out of memory", owner);
    }
    free(v->text);
    gw_spec_free(v->spec);
    v->spec = spec;
    v->text = copy;
    v->is = read;
    return GW_OK;
}

gw_err gw_args_new(gw_args **out, const gw_opt *opts) {
    size_t n = 0;
    gw_args *a = NULL;
    while (opts && opts[n].name)
        n++;
    GW_TRY(gw_alloc(&a, 1, sizeof *a + n * sizeof(value)));
    a->opts = opts;
    a->n = n;
    gw_err e = GW_OK;
    for (size_t i = 0; i < n && e == GW_OK; i++)
        if (opts[i].def)
            e = args_assign(&opts[i], &a->values[i], "default", opts[i].def);
    GW_OPENED(e, out, a, gw_args_free);
}

void gw_args_free(gw_args *args) {
    if (!args)
        return;
    for (size_t i = 0; i < args->n; i++) {
        free(args->values[i].text);
        gw_spec_free(args->values[i].spec);
    }
    free(args);
}

gw_err gw_args_set(gw_args *args, const char *owner, const char *name, const char *text) {
    value *v = args_find(args, name);
    if (!v)
        return args_unknown(args, owner, name);
    const gw_opt *o = &args->opts[v - args->values];
    bool words = args_is_text(o) || args_is_spec(o);
    if (words && !*text) /* what would stand for it in messages and files? */
        return gw_fail(GW_ERR_USAGE, "%s: %s is empty: give %s", owner, name, gw_opt_meta(o));
    GW_TRY(args_assign(o, v, owner, text));
    v->given = true;
    return GW_OK;
}

gw_err gw_args_of(gw_args **out, const gw_opt *opts, const char *owner, const gw_spec *spec) {
    gw_args *args = NULL;
    gw_err e = gw_args_new(&args, opts);
    for (int i = 0; e == GW_OK && i < spec->n_args; i++) {
        const value *v = args_find(args, spec->arg[i].name);
        e = v && v->given ? gw_fail(GW_ERR_USAGE, "%s: %s is given twice: remove one", owner,
                                    spec->arg[i].name)
                          : gw_args_set(args, owner, spec->arg[i].name, spec->arg[i].value);
    }
    GW_OPENED(e, out, args, gw_args_free);
}

gw_err gw_args_argv(gw_args *args, const char *owner, int argc, char **argv, int *positional) {
    int kept = 0;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) != 0 || !argv[i][2]) {
            if (!positional)
                return gw_fail(GW_ERR_USAGE, "%s: unexpected word '%s': options start with --",
                               owner, argv[i]);
            GW_TRY(gw_text_name(owner, "", argv[i]));
            argv[1 + kept++] = argv[i];
            continue;
        }
        char *name = argv[i] + 2, *eq = strchr(name, '='), key[64];
        size_t len = eq ? (size_t)(eq - name) : strlen(name);
        if (len >= sizeof key)
            return gw_fail(GW_ERR_USAGE, "%s: unknown option '%.40s...'", owner, name);
        memcpy(key, name, len);
        key[len] = '\0';
        const value *v = args_find(args, key);
        if (!v)
            return args_unknown(args, owner, key);
        bool flag = args->opts[v - args->values].type == GW_OPT_FLAG;
        if (!eq && !flag && i + 1 >= argc)
            return gw_fail(GW_ERR_USAGE, "%s: --%s needs a value", owner, key);
        GW_TRY(gw_args_set(args, owner, key, eq ? eq + 1 : flag ? "1" : argv[++i]));
    }
    if (positional)
        *positional = kept;
    return GW_OK;
}

bool gw_args_flag(const gw_args *args, const char *name) {
    return args_must_find(args, name)->is.number != 0;
}

long long gw_args_int(const gw_args *args, const char *name) {
    return (long long)args_must_find(args, name)->is.number;
}

size_t gw_args_bytes(const gw_args *args, const char *name) {
    return (size_t)args_must_find(args, name)->is.number;
}

double gw_args_real(const gw_args *args, const char *name) {
    return args_must_find(args, name)->is.number;
}

const char *gw_args_text(const gw_args *args, const char *name) {
    return args_must_find(args, name)->text;
}

bool gw_args_has(const gw_args *args, const char *name) {
    return args_find(args, name);
}

const gw_spec *gw_args_spec(const gw_args *args, const char *name) {
    return args_must_find(args, name)->spec;
}

bool gw_args_given(const gw_args *args, const char *name) {
    return args_must_find(args, name)->given;
}

const gw_opt *gw_args_opts(const gw_args *args) {
    return args->opts;
}

bool gw_opt_is_int(const gw_opt *o) {
    return o->type == GW_OPT_INT || o->type == GW_OPT_STEPS || o->type == GW_OPT_PERIOD;
}

/* ---- into a config ---- */

void gw_args_fill(const gw_args *args, void *config) {
    for (size_t i = 0; i < args->n; i++) {
        const gw_opt *o = &args->opts[i];
        const value *v = &args->values[i];
        if (o->into == 0)
            continue;
        void *to = (char *)config + o->into - 1;
        switch (o->type) {
        case GW_OPT_REAL:
        case GW_OPT_TIME: *(double *)to = v->is.number; break;
        case GW_OPT_EVERY: *(gw_count_time *)to = (gw_count_time){v->is.count, v->is.number}; break;
        case GW_OPT_TEXT:
        case GW_OPT_PATH:
        case GW_OPT_FILE: *(const char **)to = v->text; break;
        case GW_OPT_SPEC:
        case GW_OPT_SPECS:
        case GW_OPT_COMMAS:
        case GW_OPT_CHAIN: *(const gw_spec **)to = v->spec; break;
        case GW_OPT_LIST:
            *(int *)to = (int)v->is.count;
            args_read_value(o, "", v->text, &(parsed){0}, (int *)to + 1);
            break;
        default:
            if (o->type == GW_OPT_CHOICE && o->size == sizeof(char *))
                *(const char **)to = v->text;
            else if (o->size == sizeof(bool))
                *(bool *)to = v->is.number != 0;
            else if (o->size == sizeof(int))
                *(int *)to = (int)v->is.number;
            else
                *(int64_t *)to = (int64_t)v->is.number;
        }
    }
}

/* ---- rules ---- */

/* Is the option's value one of "a|b", or with "!a|b" none of these? With words NULL: was it
 * given? */
static bool args_holds(const gw_args *args, const char *option, const char *words) {
    const value *v = args_must_find(args, option);
    const gw_opt *o = &args->opts[v - args->values];
    if (!words)
        return v->given && !(o->type == GW_OPT_FLAG && v->is.number == 0);
    bool none = *words == '!', any = false;
    for (const char *w = words + none; v->text && *w && !any;) {
        size_t len = strcspn(w, "|");
        any = gw_opt_is_int(o) || o->type == GW_OPT_REAL
                  ? v->is.number == strtod(w, NULL)
                  : strlen(v->text) == len && memcmp(v->text, w, len) == 0;
        w += len + (w[len] == '|');
    }
    return v->text && any != none;
}

/* "--option", "--option value" as it is, or as it would have to be. */
static void args_name(const gw_args *args, const char *option, const char *words, bool wanted,
                      char out[128]) {
    const value *v = args_must_find(args, option);
    const gw_opt *o = &args->opts[v - args->values];
    const char *text = wanted  ? words && *words != '!' ? words : gw_opt_meta(o)
                        : words ? v->text
                               : NULL;
    snprintf(out, 128, "--%s%s%.80s", option, text ? " " : "", text ? text : "");
}

gw_err gw_args_check(const gw_args *args, const gw_rule *rules, const char *owner) {
    char option[128], other[128];
    for (const gw_rule *r = rules; r && r->option; r++) {
        if (!args_holds(args, r->option, r->value) ||
            args_holds(args, r->other, r->other_value) == r->needs)
            continue;
        args_name(args, r->option, r->value, false, option);
        args_name(args, r->other, r->other_value, r->needs, other);
        return r->needs ? gw_fail(GW_ERR_USAGE, "%s: %s needs %s: %s", owner, option, other, r->why)
                        : gw_fail(GW_ERR_USAGE, "%s: %s excludes %s: %s: remove one of them", owner,
                                  option, other, r->why);
    }
    return GW_OK;
}

/* ---- help ---- */

const char *gw_opt_meta(const gw_opt *o) {
    static const char *const metas[] = {NULL,   "N",    "X",          "BYTES",  NULL,   "TEXT",
                                        "PATH", "TIME", "STEPS|TIME", "N,N,..", "SPEC", "LIST",
                                        "LIST", "SPEC", "FILE",       "STEPS",  "STEPS"};
    return o->meta ? o->meta : o->choices ? o->choices : metas[o->type];
}

enum { HELP_TEXT = 37, HELP_LEAST = 60, HELP_USUAL = 80 }; /* columns */

void gw_args_help(const gw_opt *opts, const char *prefix, FILE *to) {
    struct winsize size;
    const char *set = getenv("COLUMNS");
    int width = set ? atoi(set) : 0;
    if (width <= 0 && ioctl(fileno(to), TIOCGWINSZ, &size) == 0)
        width = size.ws_col;
    width = width <= 0 ? HELP_USUAL : width < HELP_LEAST ? HELP_LEAST : width;
    for (const gw_opt *o = opts; o && o->name; o++) {
        const char *meta = gw_opt_meta(o);
        bool shown = o->def && *o->def && o->type != GW_OPT_FLAG;
        char left[128], text[1024];
        if (o->group)
            fprintf(to, "%s%s:\n", o == opts ? "" : "\n", o->group);
        snprintf(left, sizeof left, "  %s%s%s%s", prefix, o->name,
                 !meta     ? ""
                 : *prefix ? " "
                           : "=",
                 meta ? meta : "");
        snprintf(text, sizeof text, "%s%s%s%s", o->help, shown ? " [" : "", shown ? o->def : "",
                 shown ? "]" : "");
        int at = fprintf(to, "%-*s ", HELP_TEXT - 1, left);
        gw_text_wrap(to, text, at, HELP_TEXT, width);
    }
}
