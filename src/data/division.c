#include "data/division.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

gw_span gw_portion_of(size_t n, int r, gw_shares by) {
    if (r < 0)
        return (gw_span){0, 0};
    if (!by.ends)
        return gw_span_part((gw_span){0, n}, r, by.parts);
    size_t all = by.ends[by.parts - 1];
    size_t lo = r > 0 ? n * by.ends[r - 1] / all : 0, hi = n * by.ends[r] / all;
    return (gw_span){lo, hi - lo};
}

gw_err gw_portion_cut(uint32_t n, int batch, int r, gw_shares by, uint32_t *first,
                      uint32_t *count) {
    if (batch < 1 || (uint32_t)batch > n)
        return gw_fail(GW_ERR_USAGE,
                       "global batch %d: must be from 1 to the number of training samples, %u",
                       batch, n);
    uint32_t full = n / (uint32_t)batch;
    gw_span whole = gw_portion_of((size_t)batch, r, by),
            rest = gw_portion_of(n % (uint32_t)batch, r, by);
    *first = full * (uint32_t)whole.off + (uint32_t)rest.off;
    *count = full * (uint32_t)whole.n + (uint32_t)rest.n;
    return GW_OK;
}

/* Keys of the draws; they differ from that of the validation set. */
enum { SALT_WEIGHTS = 0x77656967, SALT_LABELS = 0x6c61626c, SALT_ORDER = 0x70617274 };

/* ---- as told ---- */

#define INTO(member) GW_OPT_INTO(gw_division, member)
#define AN_ALPHA(def, help)                                                                        \
    { "alpha", GW_OPT_REAL, def, 1e-3, 1e6, NULL, NULL, help, INTO(alpha) }

static const gw_opt
    of_labels[] =
        {AN_ALPHA("1",
                  "parameter of the Dirichlet distribution of each rank's labels: small is uneven"),
         {0}},
    of_sizes[] = {
        AN_ALPHA(NULL,
                 "draw the numbers of samples from a Dirichlet distribution: small is uneven"),
        {"of", GW_OPT_LIST, "", 1, 1e6, NULL, NULL,
         "relative numbers of samples, one per rank; in short: sizes:N,N,..", INTO(weights)},
        {0}};

enum { ABI = 1 };
static const gw_entry uniform = {ABI, "uniform",
                                 "each rank takes the next samples, in a new order each epoch",
                                 NULL},
                      labels = {ABI, "labels", "equal numbers of samples per rank, unequal labels",
                                of_labels},
                      sizes = {ABI, "sizes", "unequal numbers of samples and of each batch",
                               of_sizes};
static const gw_entry *const entries[] = {&uniform, &labels, &sizes, NULL};
const gw_registry gw_divisions = {.kind = "partition", .abi = ABI, .entries = entries};

gw_err gw_division_read(gw_division *p, const char *text) {
    const gw_entry *found = &sizes;
    gw_spec *spec = NULL;
    gw_args *args = NULL;
    bool list = strncmp(text, "sizes:", 6) == 0 && isdigit((unsigned char)text[6]);
    gw_err e = list ? gw_args_new(&args, of_sizes)
                    : gw_spec_parse(&spec, "train", "partition", text, GW_SPEC_ONE);
    if (!list)
        GW_THEN(e, gw_registry_find(&gw_divisions, spec->name, &found));
    GW_THEN(e, list ? gw_args_set(args, "sizes", "of", text + 6)
                    : gw_args_of(&args, found->opts, found->name, spec));
    if (e == GW_OK) {
        *p = (gw_division){.on = found != &uniform, .labels = found == &labels};
        gw_args_fill(args, p);
    }
    gw_args_free(args);
    gw_spec_free(spec);
    if (e == GW_OK && found == &sizes && (p->weights[0] > 0) == (p->alpha > 0))
        e = gw_fail(GW_ERR_USAGE,
                    "train: --partition %s: give alpha, or a number for each rank, as "
                    "sizes:3,1,1,1",
                    text);
    return e;
}

/* ---- draws ---- */

/* The logarithm of a draw from Gamma(a), which does not vanish for a small a: Gamma(a + 1) times
 * U^(1/a) (Marsaglia and Tsang, "A simple method for generating gamma variables", ACM TOMS 26(3),
 * 2000). */
static double division_log_gamma(uint64_t key, double a) {
    uint64_t normal = gw_rng_key(key, 0), unit = gw_rng_key(key, 1);
    double d = a + 2.0 / 3, c = 1 / sqrt(9 * d);
    for (uint64_t i = 1;; i++) {
        double x = gw_rng_normal(normal, i), b = 1 + c * x, v = b * b * b;
        if (v > 0 && log(1 - gw_rng_unit(unit, i)) < x * x / 2 + d - d * v + d * log(v))
            return log(d * v) + log(1 - gw_rng_unit(unit, 0)) / a;
    }
}

/* q[0..n) of Dirichlet(a[0..n)); where a is 0, so is q. */
static void division_dirichlet(uint64_t key, const double *a, int n, double *q) {
    double most = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) {
        q[i] = a[i] > 0 ? division_log_gamma(gw_rng_key(key, (uint64_t)i), a[i]) : -INFINITY;
        most = fmax(most, q[i]);
    }
    for (int i = 0; i < n; i++)
        sum += q[i] = exp(q[i] - most);
    for (int i = 0; i < n; i++)
        q[i] /= sum;
}

static gw_err division_weigh(const gw_division_job *j, uint32_t *ends) {
    const gw_division *how = j->how;
    double *a = NULL, unit = 0x1p24;
    bool drawn = !how->labels && how->alpha > 0;
    GW_TRY(gw_alloc(&a, 2 * (size_t)j->parts, sizeof *a));
    double *q = a + j->parts;
    for (int p = 0; p < j->parts; p++)
        a[p] = how->alpha;
    if (drawn)
        division_dirichlet(gw_rng_key(j->seed, SALT_WEIGHTS), a, j->parts, q);
    for (int p = 0; p < j->parts; p++) {
        uint32_t weight = how->labels ? 1 : (uint32_t)how->weights[1 + p];
        ends[p] = (p > 0 ? ends[p - 1] : 0) + (drawn ? (uint32_t)(q[p] * unit) : weight);
    }
    free(a);
    return GW_OK;
}

/* ---- who gets which sample ---- */

enum { CLASSES = 256 };

typedef struct pool {
    uint32_t *samples;                     /* shuffled, then class by class */
    uint32_t next[CLASSES], left[CLASSES]; /* of each class */
} pool;

/* One of the classes that are left, by the weights q; if these have none left, of all samples. */
static int division_draw(const pool *of, const double *q, double u) {
    double sum = 0, all = 0;
    int last = 0;
    for (int c = 0; c < CLASSES; c++) {
        sum += of->left[c] > 0 ? q[c] : 0;
        all += of->left[c];
    }
    u *= sum > 0 ? sum : all;
    for (int c = 0; c < CLASSES && u >= 0; c++) {
        double weight = of->left[c] == 0 ? 0 : sum > 0 ? q[c] : of->left[c];
        last = weight > 0 ? c : last;
        u -= weight;
    }
    return last;
}

static gw_err division_by_labels(const gw_division_job *j, const gw_divided *d, const gw_label *of,
                                 uint32_t n, uint32_t *order) {
    pool from = {.left = {0}};
    double *q = NULL, a[CLASSES];
    uint64_t key = gw_rng_key(j->seed, SALT_LABELS);
    uint32_t at = 0, most = 0;
    GW_TRY(gw_alloc(&q, (size_t)j->parts * CLASSES, sizeof *q));
    gw_err e = gw_alloc(&from.samples, n, sizeof *from.samples);
    for (uint32_t i = 0; e == GW_OK && i < n; i++)
        from.left[of[i]]++;
    for (int c = 0; c < CLASSES; at += from.left[c++]) {
        a[c] = j->how->alpha * from.left[c] / n;
        from.next[c] = at;
    }
    for (uint32_t i = 0; e == GW_OK && i < n; i++)
        from.samples[from.next[of[order[i]]]++] = order[i];
    for (int c = 0; c < CLASSES; c++)
        from.next[c] -= from.left[c];
    for (int p = 0; p < j->parts; p++) {
        division_dirichlet(gw_rng_key(key, 2 * (uint64_t)p), a, CLASSES, q + p * CLASSES);
        most = d->samples[p] > most ? d->samples[p] : most;
    }
    for (uint32_t i = 0; e == GW_OK && i < most; i++)
        for (int p = 0, begin = 0; p < j->parts; begin += (int)d->samples[p++])
            if (i < d->samples[p]) {
                double u = gw_rng_unit(gw_rng_key(key, 2 * (uint64_t)p + 1), i);
                int c = division_draw(&from, q + p * CLASSES, u);
                order[(uint32_t)begin + i] = from.samples[from.next[c]++];
                from.left[c]--;
            }
    free(from.samples);
    free(q);
    return e;
}

/* Row order[i] of n rows of `width` bytes comes to place i. */
static gw_err division_move(uint8_t *rows, size_t width, const uint32_t *order, uint32_t n) {
    uint8_t *kept = NULL, *moved = NULL;
    gw_err e = gw_alloc(&kept, width, 1);
    GW_THEN(e, gw_alloc(&moved, n, 1));
    for (uint32_t i = 0; e == GW_OK && i < n; i++) {
        uint32_t to = i;
        if (moved[i])
            continue;
        memcpy(kept, rows + i * width, width);
        for (uint32_t from; (from = order[to]) != i; to = from) {
            memcpy(rows + to * width, rows + from * width, width);
            moved[to] = 1;
        }
        memcpy(rows + to * width, kept, width);
        moved[to] = 1;
    }
    free(kept);
    free(moved);
    return e;
}

static gw_err division_measure(gw_divided *d, const gw_raw *raw) {
    size_t targets = (size_t)raw->targets, n = raw->train.n * targets;
    const gw_label *of = raw->train.labels;
    double *all = NULL, *mine = NULL;
    gw_err e = gw_alloc(&all, (size_t)raw->classes, sizeof *all);
    GW_THEN(e, gw_alloc(&mine, (size_t)raw->classes, sizeof *mine));
    for (size_t i = 0; e == GW_OK && i < n; i++)
        all[of[i]] += 1.0 / (double)n;
    for (int p = 0; e == GW_OK && p < d->parts; p++) {
        size_t own = d->samples[p] * targets;
        memset(mine, 0, (size_t)raw->classes * sizeof *mine);
        for (size_t i = 0; i < own; i++)
            mine[of[i]] += 1.0 / (double)own;
        for (int c = 0; c < raw->classes; c++)
            d->skew[p] += fabs(mine[c] - all[c]) / 2;
        of += own;
    }
    free(all);
    free(mine);
    return e;
}

/* ---- the whole ---- */

gw_err gw_division_make(gw_divided *out, const gw_division_job *job, gw_raw *raw, bool outline) {
    size_t parts = (size_t)job->parts;
    int told = job->how->weights[0];
    if (told > 0 && told != job->parts)
        return gw_fail(GW_ERR_USAGE,
                       "train: --partition: sizes of %d rank%s, and %d take%s samples", told,
                       told == 1 ? "" : "s", job->parts, job->parts == 1 ? "s" : "");
    if (job->how->labels && (raw->classes > CLASSES || raw->targets > 1))
        return gw_fail(GW_ERR_USAGE,
                       "train: --partition labels: samples have %d label%s of %d classes: it takes "
                       "one of at most %d: give sizes",
                       raw->targets, raw->targets == 1 ? "" : "s", raw->classes, CLASSES);
    if (job->parts == 1)
        return GW_OK; /* it has all there is */
    out->parts = job->parts;
    GW_TRY(gw_alloc(&out->ends, parts, sizeof *out->ends));
    GW_TRY(gw_alloc(&out->samples, parts, sizeof *out->samples));
    GW_TRY(gw_alloc(&out->skew, parts, sizeof *out->skew));
    GW_TRY(division_weigh(job, out->ends));
    gw_shares by = {out->parts, out->ends};
    for (int p = 0; p < out->parts; p++) {
        uint32_t first;
        GW_TRY(gw_portion_cut(raw->train.n, job->batch, p, by, &first, &out->samples[p]));
        if (gw_portion_of((size_t)job->batch, p, by).n == 0)
            return gw_fail(GW_ERR_USAGE,
                           "train: --partition: rank %d of %d that train would have %u of %u "
                           "samples, and none of a global batch of %d: give a larger --batch or "
                           "alpha, or other sizes",
                           p, out->parts, out->samples[p], raw->train.n, job->batch);
    }
    if (outline)
        return GW_OK;
    gw_raw_part *set = &raw->train;
    uint32_t *order = NULL;
    GW_TRY(gw_alloc(&order, set->n, sizeof *order));
    for (uint32_t i = 0; i < set->n; i++)
        order[i] = i;
    gw_rng_shuffle(gw_rng_key(job->seed, SALT_ORDER), order, set->n);
    gw_err e = job->how->labels ? division_by_labels(job, out, set->labels, set->n, order) : GW_OK;
    uLong crc = crc32_z(0, (const Bytef *)order, set->n * sizeof *order);
    snprintf(out->hash, sizeof out->hash, "crc32:%08lx", crc);
    GW_THEN(e, division_move(set->images, (size_t)raw->rows * (size_t)raw->cols, order, set->n));
    GW_THEN(e, division_move((uint8_t *)set->labels, (size_t)raw->targets * sizeof *set->labels,
                             order, set->n));
    GW_THEN(e, division_measure(out, raw));
    free(order);
    return e;
}

void gw_divided_free(gw_divided *d) {
    free(d->ends);
    free(d->samples);
    free(d->skew);
}

json_t *gw_divided_json(const gw_divided *d) {
    if (d->parts == 0)
        return json_null();
    json_t *samples = json_array(), *skew = json_array();
    double sum = 0;
    for (int p = 0; p < d->parts; p++) {
        json_array_append_new(samples, json_integer(d->samples[p]));
        json_array_append_new(skew, gw_json_number(d->skew[p]));
        sum += d->skew[p];
    }
    return gw_json_object("samples:o label_skew:o mean_label_skew:f hash:s", samples, skew,
                          sum / d->parts, d->hash);
}
