/* bench codec: what each codec costs and keeps, as ratios to memcpy measured next to it. */
#include "cli/bench/bench.h"

#include "base/mem.h"
#include "base/rng.h"
#include "base/version.h"
#include "cli/bench/bench_kit.h"
#include "compress/codec.h"
#include "compress/feedback.h"
#include "compress/kernel/simd.h"
#include "compress/lowrank.h"

#include <jansson.h>
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_REPEATS = 1000 };
#define LEAST_S 0.5e-3 /* a timing lasts at least this long */
#define KEY     0x6772616477697265u

static const gw_opt opts[] = {
    {"codecs", GW_OPT_TEXT, NULL, 0, 0, NULL, "SPEC;SPEC...",
     "codecs with their options, e.g. 'fp16;qsgd:bits=4'; powersgd:rank=N, too [all, with default "
     "options]"},
    {"sizes", GW_OPT_TEXT, "940584,23298088", 0, 0, NULL, "BYTES,BYTES...",
     "bytes of the float spans (K, M, G allowed; LOW..HIGH doubles)"},
    {"repeats", GW_OPT_INT, "15", 1, MOST_REPEATS, NULL, NULL, "timings of each figure"},
    {"scale", GW_OPT_REAL, "1", 1e-45, 1e38, NULL, NULL,
     "multiply the span by this; 1e-36 makes denormals of it, which are not flushed then"},
    {"threads", GW_OPT_INT, "1", 1, 1024, NULL, NULL, "OpenMP threads of the codecs"},
    {"json", GW_OPT_TEXT, NULL, 0, 0, NULL, "FILE", "write all figures, minima too, to FILE"},
    {0}};

static const char notes[] =
    "GB/s are bytes of the float span (not of the encoding) a second, 1 GB = 1e9 bytes, from the\n"
    "median timing. 'x memcpy' divides a timing of a one-threaded memcpy of the same span, taken\n"
    "just before, by the codec's: the median over the repeats; (in brackets) shortest by "
    "shortest.\n"
    "'enc+EF' is the encoding with error feedback, as a lane does it: the residual added, the sum\n"
    "encoded, what was encoded taken off it; of the codecs that need it only, else '-'. Of\n"
    "powersgd, which is no codec, it is all that one rank does of a step for a matrix about as\n"
    "wide as high.\n"
    "bits/el is 8 * encoded bytes / floats; error is |decode(encode(x)) - x| / |x| (2-norms). x "
    "is\n"
    "like a gradient: normal, a scale of its own for each 4096 floats, an eighth exact zeros. The\n"
    "order of the timings is shuffled in each repeat; the default sizes are the gradients of the\n"
    "nets 784-256-128-10 and 784-2048-2048-10.";

enum { ENCODE, FEEDBACK, DECODE_ADD, OPS, COPY = OPS };

/* One codec at one size. */
typedef struct row {
    const char *spec;
    gw_codec *codec; /* NULL: low-rank factors instead */
    gw_lowrank low;
    float *p, *q;
    size_t n, wire_bytes;
    unsigned char *wire;
    double error;
    float *v, *e; /* of FEEDBACK: a span of its own, and its residual; NULL: not measured */
    double *copy_s[OPS], *run_s[OPS]; /* one a repeat */
} row;

typedef struct bench {
    gw_list specs;
    const char *spec[GW_BENCH_ITEMS];
    gw_codec codec[GW_BENCH_ITEMS];
    int rank[GW_BENCH_ITEMS]; /* of low-rank factors; 0: it is a codec */
    gw_bench_sizes sizes;
    int codecs, repeats, threads;
    double scale;
    const char *json;
    float *x, *y; /* of the largest size */
    row *rows;
} bench;

static bench the; /* a command runs once */

/* ---- input ---- */

static const char powersgd[] = "powersgd";

static gw_err open_lowrank(bench *b, const char *options) {
    static const gw_opt rank[] = {
        {"rank", GW_OPT_INT, "2", 1, GW_LOWRANK_MOST, NULL, NULL, "factors"}, {0}};
    gw_args *args;
    GW_TRY(gw_args_new(&args, rank));
    gw_err e = gw_args_spec(args, powersgd, options);
    if (e == GW_OK)
        b->rank[b->codecs] = (int)gw_args_int(args, "rank");
    gw_args_free(args);
    return e;
}

static gw_err open_codec(bench *b, const char *spec) {
    size_t name = strcspn(spec, ":");
    if (b->codecs == GW_BENCH_ITEMS)
        return gw_fail(GW_ERR_USAGE, "bench: more than %d codecs", GW_BENCH_ITEMS);
    if (name == strlen(powersgd) && strncmp(spec, powersgd, name) == 0)
        GW_TRY(open_lowrank(b, spec[name] ? spec + name + 1 : NULL));
    else
        GW_TRY(gw_codec_open(&b->codec[b->codecs], spec));
    b->spec[b->codecs++] = spec;
    return GW_OK;
}

static gw_err open_codecs(bench *b, const char *list) {
    if (!list) {
        for (const gw_entry *const *c = gw_codecs.entries; *c; c++)
            GW_TRY(open_codec(b, (*c)->name));
        return open_codec(b, powersgd);
    }
    GW_TRY(gw_list_read(&b->specs, "bench", "codecs", list, false));
    for (int c = 0; c < b->specs.n; c++)
        GW_TRY(open_codec(b, b->specs.item[c]));
    return GW_OK;
}

static void fill_gradient(float *x, size_t n, double by) {
    for (size_t i = 0; i < n; i++) {
        double scale = by * 1e-3 * exp2(4 * gw_rng_unit(KEY + 1, i / 4096));
        int zero = gw_rng_u64(KEY + 2, i) >> 61 == 0;
        x[i] = zero ? 0.0f : (float)(scale * gw_rng_normal(KEY, i));
    }
}

/* ---- one row ---- */

static gw_err row_fed_back(row *r, const bench *b) {
    GW_TRY(gw_alloc(&r->v, r->n, sizeof *r->v));
    memcpy(r->v, b->x, r->n * sizeof *r->v);
    return gw_alloc(&r->e, r->n, sizeof *r->e);
}

/* A matrix that the span holds, about as wide as high, its width a multiple of 64 as those of
 * layers mostly are. */
static gw_err row_factors(row *r, const bench *b, int rank) {
    size_t cols = (size_t)sqrt((double)r->n);
    cols = cols > 64 ? cols / 64 * 64 : cols;
    size_t rows = r->n / cols;
    r->n = rows * cols;
    GW_TRY(row_fed_back(r, b));
    GW_TRY(gw_alloc(&r->p, rows * (size_t)rank, sizeof *r->p));
    GW_TRY(gw_alloc(&r->q, cols * (size_t)rank, sizeof *r->q));
    GW_TRY(gw_lowrank_open(&r->low, rows, cols, rank, true, r->p, r->q));
    gw_lowrank_draw(&r->low, KEY);
    r->wire_bytes = (rows + cols) * (size_t)rank * sizeof(float);
    return GW_OK;
}

static gw_err row_open(row *r, const bench *b, int codec, size_t bytes) {
    r->spec = b->spec[codec];
    r->codec = b->rank[codec] ? NULL : (gw_codec *)&b->codec[codec];
    r->n = bytes / sizeof(float);
    if (!r->codec)
        GW_TRY(row_factors(r, b, b->rank[codec]));
    else
        GW_TRY(gw_alloc(&r->wire, gw_codec_bound(r->codec, r->n), 1));
    if (r->codec && r->codec->caps & GW_CODEC_BIASED)
        GW_TRY(row_fed_back(r, b));
    for (int op = 0; op < OPS; op++) {
        GW_TRY(gw_alloc(&r->copy_s[op], (size_t)b->repeats, sizeof(double)));
        GW_TRY(gw_alloc(&r->run_s[op], (size_t)b->repeats, sizeof(double)));
    }
    return GW_OK;
}

static void row_close(row *r) {
    free(r->wire);
    free(r->v);
    free(r->e);
    gw_lowrank_close(&r->low);
    free(r->p);
    free(r->q);
    for (int op = 0; op < OPS; op++) {
        free(r->copy_s[op]);
        free(r->run_s[op]);
    }
}

/* What one rank does for its matrix in a step; what is left with what was sent is the same sum
 * again. */
static void step_of_factors(row *r) {
    gw_lowrank *l = &r->low;
    gw_lowrank_warm(l, KEY);
    gw_lowrank_project(l, r->v);
    gw_lowrank_orthonormalise(r->p, l->rows, l->rank);
    gw_lowrank_gather(l, r->v);
    gw_lowrank_expand(l, r->v);
}

static gw_err row_error(row *r, const bench *b) {
    if (!r->codec) {
        step_of_factors(r);
        memcpy(b->y, r->v, r->n * sizeof *r->v);
    } else {
        GW_TRY(gw_codec_encode(r->codec, (gw_turn){KEY, 1}, b->x, r->n, r->wire,
                               gw_codec_bound(r->codec, r->n), &r->wire_bytes));
        GW_TRY(gw_codec_decode(r->codec, r->wire, r->wire_bytes, b->y, r->n, GW_INTO_SET));
    }
    double lost = 0, all = 0;
    for (size_t i = 0; i < r->n; i++) {
        double d = (double)b->y[i] - b->x[i];
        lost += d * d;
        all += (double)b->x[i] * b->x[i];
    }
    r->error = all > 0 ? sqrt(lost / all) : 0;
    return GW_OK;
}

/* ---- timing ---- */

static bool measured(const row *r, int op) {
    return op == FEEDBACK ? r->e != NULL : r->codec != NULL;
}

/* Fed back, the span may become what was encoded; with what is left that is the same sum again. */
static gw_err once(row *r, const bench *b, int op) {
    size_t cap = r->codec ? gw_codec_bound(r->codec, r->n) : 0;
    gw_turn turn = {KEY, 1};
    if (!r->codec && op == FEEDBACK) {
        step_of_factors(r);
        return GW_OK;
    }
    switch (op) {
    case ENCODE: return gw_codec_encode(r->codec, turn, b->x, r->n, r->wire, cap, &r->wire_bytes);
    case FEEDBACK:
        return gw_feedback_encode(r->codec, turn, r->v, r->e, r->n, false, r->wire, cap,
                                  &r->wire_bytes);
    case DECODE_ADD:
        return gw_codec_decode(r->codec, r->wire, r->wire_bytes, b->y, r->n, GW_INTO_ADD);
    default: memcpy(b->y, b->x, r->n * sizeof(float)); return GW_OK;
    }
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds a call: one call to warm the caches, then as many as fill LEAST_S, and then once more
 * that number, timed as one. */
static gw_err time_op(row *r, const bench *b, int op, double *seconds) {
    double start = now(), spent = 0;
    int calls = 0;
    GW_TRY(once(r, b, op));
    for (start = now(); spent < LEAST_S; calls++) {
        GW_TRY(once(r, b, op));
        spent = now() - start;
    }
    start = now();
    for (int c = 0; c < calls; c++)
        GW_TRY(once(r, b, op));
    *seconds = (now() - start) / calls;
    return GW_OK;
}

static gw_err time_all(bench *b) {
    uint32_t count = (uint32_t)(OPS * b->codecs * b->sizes.n), *order = NULL;
    GW_TRY(gw_alloc(&order, count, sizeof *order));
    gw_err e = GW_OK;
    for (int rep = 0; rep < b->repeats && e == GW_OK; rep++) {
        for (uint32_t i = 0; i < count; i++)
            order[i] = i;
        gw_rng_shuffle(gw_rng_key(KEY, (uint64_t)rep), order, count);
        for (uint32_t i = 0; i < count && e == GW_OK; i++) {
            row *r = &b->rows[order[i] / OPS];
            int op = (int)(order[i] % OPS);
            if (!measured(r, op))
                continue;
            e = time_op(r, b, COPY, &r->copy_s[op][rep]);
            if (e == GW_OK)
                e = time_op(r, b, op, &r->run_s[op][rep]);
        }
    }
    free(order);
    return e;
}

/* ---- results ---- */

typedef struct figures {
    double min_s, median_s, gb_s, ratio, min_ratio, copy_min_s, copy_median_s;
} figures;

/* Sorts the row's timings: call it once. */
static figures summarise(row *r, int op, int repeats) {
    double ratio[MOST_REPEATS], *run = r->run_s[op], *copy = r->copy_s[op];
    for (int i = 0; i < repeats; i++)
        ratio[i] = copy[i] / run[i];
    gw_stats ran = gw_stats_of(run, repeats), copied = gw_stats_of(copy, repeats);
    figures f = {.min_s = ran.min,
                 .median_s = ran.median,
                 .ratio = gw_stats_median(ratio, repeats),
                 .min_ratio = copied.min / ran.min,
                 .copy_min_s = copied.min,
                 .copy_median_s = copied.median};
    f.gb_s = 1e-9 * (double)(r->n * sizeof(float)) / f.median_s;
    return f;
}

static json_t *figures_json(const figures *f) {
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "min_s", f->min_s, "median_s",
                     f->median_s, "gb_per_s", f->gb_s, "over_memcpy", f->ratio, "over_memcpy_min",
                     f->min_ratio, "memcpy_min_s", f->copy_min_s, "memcpy_median_s",
                     f->copy_median_s);
}

static void print_op(const row *r, int op, const figures *f) {
    char ratio[32];
    snprintf(ratio, sizeof ratio, "%.2f (%.2f)", f->ratio, f->min_ratio);
    if (measured(r, op))
        printf(" %8.2f %14s", f->gb_s, ratio);
    else
        printf(" %8s %14s", "-", "-");
}

static json_t *report_row(row *r, int repeats) {
    figures f[OPS] = {0};
    json_t *json[OPS];
    double bits = 8.0 * (double)r->wire_bytes / (double)r->n;
    printf("%-18s %10zu %8.3f", r->spec, r->n * sizeof(float), bits);
    for (int op = 0; op < OPS; op++) {
        if (measured(r, op))
            f[op] = summarise(r, op, repeats);
        json[op] = measured(r, op) ? figures_json(&f[op]) : json_null();
        print_op(r, op, &f[op]);
    }
    printf("  %9.3e\n", r->error);
    return json_pack("{s:s, s:I, s:I, s:f, s:f, s:o, s:o, s:o}", "codec", r->spec, "bytes",
                     (json_int_t)(r->n * sizeof(float)), "wire_bytes", (json_int_t)r->wire_bytes,
                     "bits_per_element", bits, "relative_error", r->error, "encode", json[ENCODE],
                     "encode_feedback", json[FEEDBACK], "decode_add", json[DECODE_ADD]);
}

static json_t *report(bench *b, const char *simd) {
    json_t *rows = json_array();
    printf("codecs against memcpy: %d thread%s, %s, %d repeats\n\n", b->threads,
           b->threads == 1 ? "" : "s", simd, b->repeats);
    printf("%-18s %10s %8s %8s %14s %8s %14s %8s %14s  %9s\n", "codec", "bytes", "bits/el",
           "enc GB/s", "x memcpy", "enc+EF", "x memcpy", "d+a GB/s", "x memcpy", "error");
    for (int i = 0; i < b->codecs * b->sizes.n; i++)
        json_array_append_new(rows, report_row(&b->rows[i], b->repeats));
    return json_pack("{s:i, s:s, s:s, s:s, s:i, s:i, s:f, s:o}", "schema", 1, "benchmark", "codec",
                     "version", GW_VERSION " (" GW_COMMIT ")", "simd", simd, "threads", b->threads,
                     "repeats", b->repeats, "scale", b->scale, "results", rows);
}

/* ---- the whole ---- */

static gw_err prepare(const gw_args *args, int *level) {
    bench *b = &the;
    (void)level;
    b->repeats = (int)gw_args_int(args, "repeats");
    b->threads = (int)gw_args_int(args, "threads");
    b->scale = gw_args_real(args, "scale");
    b->json = gw_args_text(args, "json");
    GW_TRY(gw_bench_sizes_read(&b->sizes, gw_args_text(args, "sizes")));
    return open_codecs(b, gw_args_text(args, "codecs"));
}

static gw_err make_rows(bench *b) {
    omp_set_num_threads(b->threads);
    if (b->scale == 1)
        gw_flush_denormals();
    GW_TRY(gw_alloc(&b->x, b->sizes.most, 1));
    GW_TRY(gw_alloc(&b->y, b->sizes.most, 1));
    fill_gradient(b->x, b->sizes.most / sizeof(float), b->scale);
    GW_TRY(gw_alloc(&b->rows, (size_t)(b->codecs * b->sizes.n), sizeof *b->rows));
    for (int s = 0, i = 0; s < b->sizes.n; s++)
        for (int c = 0; c < b->codecs; c++, i++) {
            GW_TRY(row_open(&b->rows[i], b, c, b->sizes.bytes[s]));
            GW_TRY(row_error(&b->rows[i], b));
        }
    return GW_OK;
}

static gw_err measure(bench *b, gw_file *file) {
    gw_simd simd;
    gw_err e = gw_simd_pick(&simd);
    if (e == GW_OK)
        e = make_rows(b);
    if (e == GW_OK)
        e = time_all(b);
    if (e != GW_OK) {
        gw_file_abandon(file);
        return e;
    }
    return gw_bench_json_close(file, report(b, gw_simd_name(simd)));
}

static gw_err run(MPI_Comm comm, bool *own) {
    (void)own;
    int ranks;
    gw_file *file;
    GW_MPI(MPI_Comm_size(comm, &ranks));
    if (ranks > 1)
        return gw_fail(GW_ERR_USAGE,
                       "bench codec: measures one process: start it on 1 rank, not %d", ranks);
    GW_TRY(gw_bench_json_open(&file, the.json, comm));
    return measure(&the, file);
}

static void release(void) {
    bench *b = &the;
    for (int i = 0; b->rows && i < b->codecs * b->sizes.n; i++)
        row_close(&b->rows[i]);
    for (int c = 0; c < b->codecs; c++)
        gw_codec_close(&b->codec[c]); /* zeroed, where there is none */
    free(b->rows);
    free(b->x);
    free(b->y);
    gw_list_free(&b->specs);
}

const gw_benchmark gw_bench_codec = {
    .name = "codec",
    .summary = "what each codec costs and keeps, against memcpy (one rank)",
    .opts = opts,
    .notes = notes,
    .prepare = prepare,
    .run = run,
    .release = release,
};
