/* Gaussian clusters in the manner of scikit-learn's make_classification (after Guyon: "Design of
 * experiments of the NIPS 2003 variable selection benchmark", 2003): each cluster sits on a
 * vertex of a hypercube in a subspace of informative features and is stretched by a random linear
 * map of its own; redundant features are linear combinations of informative ones, the others
 * noise; the order of features is random; some labels are replaced by random ones. Every feature
 * has a variance near 1 and is stored as a byte over -3..3. */
#include "data/raw.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_INFORMATIVE = 64 };

const gw_opt gw_synthetic_opts[] = {
    {"samples", GW_OPT_INT, "12000", 2, GW_MAX_SAMPLES, NULL, NULL, "training and test samples"},
    {"features", GW_OPT_INT, "784", 1, 1 << 20, NULL, NULL, "inputs of a sample"},
    {"classes", GW_OPT_INT, "10", 2, GW_MAX_CLASSES, NULL, NULL, "classes, of equal size"},
    {"clusters", GW_OPT_INT, "1", 1, 16, NULL, NULL, "Gaussian clusters a class"},
    {"informative", GW_OPT_INT, NULL, 1, MAX_INFORMATIVE, NULL, NULL,
     "features that tell clusters apart (default: 16, or as many as possible)"},
    {"redundant", GW_OPT_INT, NULL, 0, 1 << 20, NULL, NULL,
     "features that combine informative ones (default: half of the others)"},
    {"separation", GW_OPT_REAL, "1.5", 0, 100, NULL, NULL,
     "distance of a cluster from the center along an informative feature, in std. deviations"},
    {"flip", GW_OPT_REAL, "0.01", 0, 1, NULL, NULL, "fraction of labels replaced by random ones"},
    {"test", GW_OPT_REAL, "0.16667", 0, 1, NULL, NULL, "fraction of samples in the test set"},
    {"seed", GW_OPT_INT, "1", 0, 0x1p53, NULL, NULL, "seed of the set"},
    {0}};

/* The distribution that samples are drawn from. C = classes * clusters, I = informative. */
typedef struct mixture {
    int features, informative, redundant, classes, clusters;
    double flip;
    uint64_t key;
    float *center;   /* (C, I) */
    float *map;      /* (C, I, I), rows of length `spread` */
    float *combine;  /* (redundant, I), rows of length 1 */
    uint32_t *place; /* (features): where feature j is stored */
} mixture;

/* Independent streams of the seed. */
enum { KEY_VERTEX = 1, KEY_MAP, KEY_COMBINE, KEY_PLACE, KEY_LABEL, KEY_SAMPLE };

/* Rows of `width` draws, uniform in [-1, 1), each scaled to `length`. */
static void synthetic_random_rows(uint64_t key, float *m, size_t rows, int width, double length) {
    for (size_t r = 0; r < rows; r++) {
        float *row = m + r * (size_t)width;
        double square = 0;
        for (int j = 0; j < width; j++) {
            row[j] = (float)(2 * gw_rng_unit(key, r * (size_t)width + (size_t)j) - 1);
            square += (double)row[j] * row[j];
        }
        double scale = length / sqrt(square > 0 ? square : 1);
        for (int j = 0; j < width; j++)
            row[j] = (float)(row[j] * scale);
    }
}

static gw_err synthetic_build(mixture *m, double separation) {
    size_t total = (size_t)m->classes * (size_t)m->clusters, wide = (size_t)m->informative;
    /* Center and spread together have unit variance, so that one byte range fits all. */
    double spread = 1 / sqrt(1 + separation * separation);
    GW_TRY(gw_alloc(&m->center, total * wide, sizeof *m->center));
    GW_TRY(gw_alloc(&m->map, total * wide * wide, sizeof *m->map));
    GW_TRY(gw_alloc(&m->combine, (size_t)m->redundant * wide, sizeof *m->combine));
    GW_TRY(gw_alloc(&m->place, (size_t)m->features, sizeof *m->place));
    /* Distinct vertices of the hypercube with corners +-side, one a cluster. */
    double side = separation * spread;
    uint64_t mask = m->informative < 64 ? ((uint64_t)1 << m->informative) - 1 : UINT64_MAX, ctr = 0;
    uint64_t key = gw_rng_key(m->key, KEY_VERTEX), *code = NULL;
    GW_TRY(gw_alloc(&code, total, sizeof *code));
    for (size_t c = 0; c < total; c++) {
        size_t other;
        do { /* ends: there are at least `total` vertices */
            code[c] = gw_rng_u64(key, ctr++) & mask;
            for (other = 0; other < c && code[other] != code[c]; other++)
                ;
        } while (other < c);
        for (size_t j = 0; j < wide; j++)
            m->center[c * wide + j] = (float)(code[c] >> j & 1 ? side : -side);
    }
    free(code);
    synthetic_random_rows(gw_rng_key(m->key, KEY_MAP), m->map, total * wide, m->informative,
                          spread);
    synthetic_random_rows(gw_rng_key(m->key, KEY_COMBINE), m->combine, (size_t)m->redundant,
                          m->informative, 1);
    for (int j = 0; j < m->features; j++)
        m->place[j] = (uint32_t)j;
    gw_rng_shuffle(gw_rng_key(m->key, KEY_PLACE), m->place, (uint32_t)m->features);
    return GW_OK;
}

static uint8_t synthetic_quantise(float x) {
    float q = (x + 3.0f) * (255.0f / 6.0f) + 0.5f;
    return (uint8_t)(q < 0 ? 0 : q > 255 ? 255 : q);
}

static float synthetic_dot(const float *a, const float *b, int n) {
    float sum = 0;
    for (int j = 0; j < n; j++)
        sum += a[j] * b[j];
    return sum;
}

/* Approximates a standard normal well enough for 8 bits: the sum of eight uniform bytes, less its
 * mean, over its deviation (central limit). Ten times as fast as an exact one. */
static float synthetic_rough_normal(uint64_t bits) {
    const uint64_t even = 0x00ff00ff00ff00ffu;
    uint64_t pairs = (bits & even) + (bits >> 8 & even);
    uint64_t sum = pairs * 0x0001000100010001u >> 48;
    return ((float)sum - 1020.0f) * (1.0f / 209.0215f);
}

/* Sample i of class *label, which may be flipped afterwards. */
static void synthetic_draw(const mixture *m, uint64_t i, gw_label *label, uint8_t *out) {
    enum { CLUSTER = MAX_INFORMATIVE * 2, FLIP, CLASS, NOISE }; /* counters after the normals' */
    uint64_t key = gw_rng_key(gw_rng_key(m->key, KEY_SAMPLE), i);
    int wide = m->informative;
    float z[MAX_INFORMATIVE], x[MAX_INFORMATIVE];
    size_t c = *label * (size_t)m->clusters + (size_t)(gw_rng_unit(key, CLUSTER) * m->clusters);
    const float *center = m->center + c * (size_t)wide;
    const float *map = m->map + c * (size_t)wide * (size_t)wide;
    for (int j = 0; j < wide; j++)
        z[j] = (float)gw_rng_normal(key, (uint64_t)j);
    for (int j = 0; j < wide; j++) {
        x[j] = center[j] + synthetic_dot(map + (size_t)j * (size_t)wide, z, wide);
        out[m->place[j]] = synthetic_quantise(x[j]);
    }
    for (int j = 0; j < m->redundant; j++)
        out[m->place[wide + j]] =
            synthetic_quantise(synthetic_dot(m->combine + (size_t)j * (size_t)wide, x, wide));
    for (int j = wide + m->redundant; j < m->features; j++)
        out[m->place[j]] =
            synthetic_quantise(synthetic_rough_normal(gw_rng_u64(key, NOISE + (uint64_t)j)));
    if (gw_rng_unit(key, FLIP) < m->flip)
        *label = (gw_label)(gw_rng_unit(key, CLASS) * m->classes);
}

static void synthetic_draw_part(const mixture *m, gw_raw_part *part, uint64_t first) {
#pragma omp parallel for schedule(static)
    for (uint32_t i = 0; i < part->n; i++)
        synthetic_draw(m, first + i, &part->labels[i], part->images + i * (size_t)m->features);
}

/* Classes of equal size in random order over both parts. */
static gw_err synthetic_fill(const mixture *m, gw_raw *raw) {
    uint32_t n = raw->train.n + raw->test.n, *order = NULL;
    size_t features = (size_t)m->features;
    GW_TRY(gw_raw_fits("synthetic", (double)n * (double)(features + sizeof(gw_label))));
    GW_TRY(gw_alloc(&raw->train.images, raw->train.n, features));
    GW_TRY(gw_alloc(&raw->train.labels, raw->train.n, sizeof(gw_label)));
    GW_TRY(gw_alloc(&raw->test.images, raw->test.n, features));
    GW_TRY(gw_alloc(&raw->test.labels, raw->test.n, sizeof(gw_label)));
    GW_TRY(gw_alloc(&order, n, sizeof *order));
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    gw_rng_shuffle(gw_rng_key(m->key, KEY_LABEL), order, n);
    for (uint32_t i = 0; i < n; i++) {
        gw_label label = (gw_label)(order[i] % (uint32_t)m->classes);
        if (i < raw->train.n)
            raw->train.labels[i] = label;
        else
            raw->test.labels[i - raw->train.n] = label;
    }
    free(order);
    synthetic_draw_part(m, &raw->train, 0);
    synthetic_draw_part(m, &raw->test, raw->train.n);
    return GW_OK;
}

static gw_err synthetic_describe(gw_raw *raw, const gw_args *args, mixture *m) {
    uint32_t n = (uint32_t)gw_args_int(args, "samples");
    double test = gw_args_real(args, "test");
    long long seed = gw_args_int(args, "seed");
    m->features = (int)gw_args_int(args, "features");
    m->classes = (int)gw_args_int(args, "classes");
    m->clusters = (int)gw_args_int(args, "clusters");
    m->flip = gw_args_real(args, "flip");
    m->key = gw_rng_key((uint64_t)seed, 0x73796e74);
    /* Divide the features into kinds; each cluster center needs a vertex of its own. */
    int need = 1, total = m->classes * m->clusters;
    while (need < MAX_INFORMATIVE && (uint64_t)1 << need < (uint64_t)total)
        need++;
    int usual = m->features < 16 ? m->features : 16;
    m->informative =
        gw_args_given(args, "informative") ? (int)gw_args_int(args, "informative") : usual;
    if (m->informative < need)
        return gw_fail(GW_ERR_USAGE,
                       "synthetic: %d informative features tell %d clusters apart, not %d "
                       "(classes=%d x clusters=%d): at least %d are needed",
                       m->informative, 1 << m->informative, total, m->classes, m->clusters, need);
    int others = m->features - m->informative;
    m->redundant =
        gw_args_given(args, "redundant") ? (int)gw_args_int(args, "redundant") : others / 2;
    if (others < 0 || m->redundant > others)
        return gw_fail(GW_ERR_USAGE,
                       "synthetic: informative=%d and redundant=%d are more than features=%d",
                       m->informative, others < 0 ? 0 : m->redundant, m->features);
    raw->test.n = (uint32_t)(test * n);
    raw->train.n = n - raw->test.n;
    if (raw->train.n == 0 || raw->test.n == 0)
        return gw_fail(GW_ERR_USAGE,
                       "synthetic: test=%g of samples=%u leaves %u for training and %u for "
                       "testing: both need at least 1",
                       test, n, raw->train.n, raw->test.n);
    raw->targets = raw->channels = raw->rows = 1;
    raw->cols = m->features;
    raw->classes = m->classes;
    snprintf(raw->source, sizeof raw->source,
             "synthetic:samples=%u,features=%d,classes=%d,clusters=%d,informative=%d,redundant=%d,"
             "separation=%g,flip=%g,test=%g,seed=%lld",
             n, m->features, m->classes, m->clusters, m->informative, m->redundant,
             gw_args_real(args, "separation"), m->flip, test, seed);
    return GW_OK;
}

gw_err gw_synthetic_make(gw_raw *raw, const char *text, bool outline) {
    gw_args *args = NULL;
    gw_spec *spec = NULL;
    mixture m = {0};
    *raw = (gw_raw){0};
    GW_TRY(gw_spec_parse(&spec, "synthetic", "data", text, GW_SPEC_ONE));
    gw_err e = gw_args_of(&args, gw_synthetic_opts, "synthetic", spec);
    gw_spec_free(spec);
    GW_THEN(e, synthetic_describe(raw, args, &m));
    if (e == GW_OK && !outline)
        e = synthetic_build(&m, gw_args_real(args, "separation"));
    if (e == GW_OK && !outline)
        e = synthetic_fill(&m, raw);
    free(m.center);
    free(m.map);
    free(m.combine);
    free(m.place);
    gw_args_free(args);
    if (e != GW_OK)
        gw_raw_free(raw);
    return e;
}
