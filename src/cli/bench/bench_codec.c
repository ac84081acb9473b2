/* bench codec: what each codec costs and keeps, as ratios to memcpy measured next to it. */
#include "cli/bench/bench.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "compress/codec.h"
#include "compress/feedback.h"
#include "compress/kernel/simd.h"
#include "compress/lowrank.h"
#include "mpi/rounds.h"
#include "prof/clock.h"
#include "run/residuals.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_REPEATS = 1000, RANKS = 4 };
#define LEAST_S 0.5e-3 /* a timing lasts at least this long */
#define KEY     0x6772616477697265u

/* As the first of some ranks, which matters to `rounding=correlated`. */
static const gw_turn codec_turn = {.key = KEY, .step = 1, .common = KEY, .ranks = RANKS};

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
    gw_samples copy_s[OPS], run_s[OPS]; /* one a repeat */
} row;

typedef struct state {
    gw_spec spec[GW_SPEC_ITEMS];
    gw_codec codec[GW_SPEC_ITEMS];
    int rank[GW_SPEC_ITEMS]; /* of low-rank factors; 0: it is a codec */
    gw_bench_sizes sizes;
    int codecs, repeats;
    double scale;
    gw_simd simd;
    float *x, *y; /* of the largest size */
    row *rows;
    int n_rows;
} state;

static state b;

static const gw_opt opts[] = {
    {"codecs", GW_OPT_SPECS, NULL, 0, 0, NULL, "SPEC;SPEC...",
     "codecs with their options, e.g. 'fp16;qsgd:bits=4'; also powersgd:rank=N [all, with default "
     "options]"},
    {"sizes", GW_OPT_TEXT, "940584,23298088", 0, 0, NULL, "BYTES,BYTES...",
     "bytes of the float spans (K, M, G allowed; LOW..HIGH doubles)"},
    {"repeats", GW_OPT_INT, "15", 1, MOST_REPEATS, NULL, NULL, "timings per figure", INTO(repeats)},
    {"scale", GW_OPT_REAL, "1", 1e-45, 1e38, NULL, NULL,
     "multiply the span by this; 1e-36 gives denormals, which are then not flushed", INTO(scale)},
    {"threads", GW_OPT_INT, "1", 1, 1024, NULL, NULL, "OpenMP threads of the codecs"},
    GW_BENCH_JSON,
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
    "nets 784-256-128-10 and 784-2048-2048-10. rounding=correlated draws as the first of 4 ranks.";

/* ---- input ---- */

static const char powersgd[] = "powersgd";

static gw_err open_codec(gw_spec spec) {
    gw_spec *of = &b.spec[b.codecs];
    *of = spec;
    if (strcmp(of->name, powersgd) == 0) {
        static const gw_opt rank[] = {
            {"rank", GW_OPT_INT, "2", 1, GW_LOWRANK_MOST, NULL, NULL, "factors"}, {0}};
        gw_args *args;
        GW_TRY(gw_args_of(&args, rank, powersgd, of));
        b.rank[b.codecs] = (int)gw_args_int(args, "rank");
        gw_args_free(args);
    } else {
        GW_TRY(gw_codec_open(&b.codec[b.codecs], of));
    }
    b.codecs++;
    return GW_OK;
}

/* ---- one row ---- */

static gw_err codec_row_fed_back(row *r) {
    GW_TRY(gw_alloc(&r->v, r->n, sizeof *r->v));
    memcpy(r->v, b.x, r->n * sizeof *r->v);
    return gw_alloc(&r->e, r->n, sizeof *r->e);
}

static gw_err codec_row_open(row *r, int codec, size_t bytes) {
    int rank = b.rank[codec];
    r->spec = b.spec[codec].text;
    r->codec = rank ? NULL : &b.codec[codec];
    r->n = bytes / sizeof(float);
    if (!r->codec) {
        /* A matrix that the span holds, about as wide as high, its width a multiple of 64 as those
         * of layers mostly are. */
        size_t cols = (size_t)sqrt((double)r->n);
        cols = cols > 64 ? cols / 64 * 64 : cols;
        size_t rows = r->n / cols;
        r->n = rows * cols;
        GW_TRY(codec_row_fed_back(r));
        GW_TRY(gw_alloc(&r->p, rows * (size_t)rank, sizeof *r->p));
        GW_TRY(gw_alloc(&r->q, cols * (size_t)rank, sizeof *r->q));
        GW_TRY(gw_lowrank_open(&r->low, rows, cols, rank, true, r->p, r->q));
        gw_lowrank_draw(&r->low, KEY);
        r->wire_bytes = (rows + cols) * (size_t)rank * sizeof(float);
    } else {
        GW_TRY(gw_alloc(&r->wire, gw_codec_bound(r->codec, r->n), 1));
        if (gw_residuals_kept("auto", r->codec->caps))
            GW_TRY(codec_row_fed_back(r));
    }
    return GW_OK;
}

/* What one rank does for its matrix in a step. Residual and approximation add up to the same matrix
 * again, so steps can be repeated. */
static void codec_step_of_factors(row *r) {
    gw_lowrank *l = &r->low;
    gw_lowrank_warm(l, KEY);
    gw_lowrank_project(l, r->v);
    gw_lowrank_orthonormalise(r->p, l->rows, l->rank);
    gw_lowrank_gather(l, r->v);
    gw_lowrank_expand(l, r->v);
}

static gw_err codec_row_error(row *r) {
    if (!r->codec) {
        codec_step_of_factors(r);
        memcpy(b.y, r->v, r->n * sizeof *r->v);
    } else {
        GW_TRY(gw_codec_encode(r->codec, codec_turn, b.x, r->n, r->wire,
                               gw_codec_bound(r->codec, r->n), &r->wire_bytes));
        GW_TRY(gw_codec_decode(r->codec, r->wire, r->wire_bytes, b.y, r->n, GW_INTO_SET));
    }
    double lost = 0, all = 0;
    for (size_t i = 0; i < r->n; i++) {
        double d = (double)b.y[i] - b.x[i];
        lost += d * d;
        all += (double)b.x[i] * b.x[i];
    }
    r->error = all > 0 ? sqrt(lost / all) : 0;
    return GW_OK;
}

/* ---- timing ---- */

static bool codec_measured(const row *r, int op) {
    return op == FEEDBACK ? r->e != NULL : r->codec != NULL;
}

/* With feedback the span may become what was encoded; span and residual still have the same sum. */
static gw_err codec_once(row *r, int op) {
    size_t cap = r->codec ? gw_codec_bound(r->codec, r->n) : 0;
    if (!r->codec && op == FEEDBACK) {
        codec_step_of_factors(r);
        return GW_OK;
    }
    switch (op) {
    case ENCODE:
        return gw_codec_encode(r->codec, codec_turn, b.x, r->n, r->wire, cap, &r->wire_bytes);
    case FEEDBACK:
        return gw_feedback_encode(r->codec, codec_turn, r->v, r->e, r->n, false, r->wire, cap,
                                  &r->wire_bytes);
    case DECODE_ADD:
        return gw_codec_decode(r->codec, r->wire, r->wire_bytes, b.y, r->n, GW_INTO_ADD);
    default: memcpy(b.y, b.x, r->n * sizeof(float)); return GW_OK;
    }
}

/* One call to warm the caches, then as many as fill LEAST_S, and then once more that number, timed
 * as one: seconds a call. */
static gw_err codec_time_op(row *r, int op, gw_samples *to) {
    int calls = 0;
    GW_TRY(codec_once(r, op));
    uint64_t start = gw_clock_ticks();
    for (; gw_clock_since(start) < LEAST_S; calls++)
        GW_TRY(codec_once(r, op));
    start = gw_clock_ticks();
    for (int c = 0; c < calls; c++)
        GW_TRY(codec_once(r, op));
    return gw_samples_add(to, gw_clock_since(start) / calls);
}

static gw_err codec_one_turn(void *ctx, int i, double *unused) {
    row *r = &b.rows[i / OPS];
    int op = i % OPS;
    (void)ctx, (void)unused;
    if (!codec_measured(r, op))
        return GW_OK;
    GW_TRY(codec_time_op(r, COPY, &r->copy_s[op]));
    return codec_time_op(r, op, &r->run_s[op]);
}

/* ---- results ---- */

static const gw_bench_table table = {
    .form = "%-18s %10d %8.3f %8.2f %14s %8.2f %14s %8.2f %14s  %9.3e",
    .heads = "codec|bytes|bits/el|enc GB/s|x memcpy|enc+EF|x memcpy|d+a GB/s|x memcpy|error",
    .kept = "d",
    .keys = "codec|bytes|bits_per_element|||||||relative_error|wire_bytes"};

/* What the table shows of an operation. */
typedef struct shown {
    double gb_s;
    char ratio[32];
} shown;

/* Sorts the row's timings: call it once. */
static json_t *codec_summarise(row *r, int op, shown *out) {
    double *run = r->run_s[op].x, *copy = r->copy_s[op].x, ratio[MOST_REPEATS];
    *out = (shown){NAN, "-"};
    if (!codec_measured(r, op))
        return json_null();
    for (int i = 0; i < b.repeats; i++)
        ratio[i] = copy[i] / run[i];
    gw_stats ran = gw_stats_of(run, b.repeats), copied = gw_stats_of(copy, b.repeats);
    double over = gw_stats_median(ratio, b.repeats), over_min = copied.min / ran.min;
    out->gb_s = 1e-9 * (double)(r->n * sizeof(float)) / ran.median;
    snprintf(out->ratio, sizeof out->ratio, "%.2f(%.2f)", over, over_min);
    return gw_json_object("min_s:f median_s:f gb_per_s:f over_memcpy:f over_memcpy_min:f "
                          "memcpy_min_s:f memcpy_median_s:f",
                          ran.min, ran.median, out->gb_s, over, over_min, copied.min,
                          copied.median);
}

static void codec_report(gw_bench_run *run) {
    static const char *const keys[OPS] = {"encode", "encode_feedback", "decode_add"};
    int threads = run->place.threads;
    const char *simd = gw_simd_name(b.simd);
    printf("codecs against memcpy: %d thread%s, %s, %d repeats\n", threads, threads == 1 ? "" : "s",
           simd, b.repeats);
    gw_bench_head(&table);
    for (row *r = b.rows; r < b.rows + b.n_rows; r++) {
        shown s[OPS];
        json_t *figures[OPS];
        for (int op = 0; op < OPS; op++)
            figures[op] = codec_summarise(r, op, &s[op]);
        json_t *kept = gw_bench_row(
            &table, run->results, GW_TEXTS(r->spec, s[0].ratio, s[1].ratio, s[2].ratio),
            GW_NUMBERS((double)(r->n * sizeof(float)), 8.0 * (double)r->wire_bytes / (double)r->n,
                       s[0].gb_s, s[1].gb_s, s[2].gb_s, r->error, (double)r->wire_bytes));
        for (int op = 0; op < OPS; op++)
            json_object_set_new(kept, keys[op], figures[op]);
    }
    gw_json_add(run->facts, "simd:s repeats:i scale:f", simd, b.repeats, b.scale);
}

/* ---- the whole ---- */

static gw_err codec_prepare(gw_bench_run *run) {
    const gw_args *args = run->args;
    GW_TRY(gw_bench_sizes_read(&b.sizes, gw_args_text(args, "sizes")));
    const gw_spec *list = gw_args_spec(args, "codecs");
    if (!list) {
        for (const gw_entry *const *c = gw_codecs.entries; *c; c++)
            GW_TRY(open_codec(GW_SPEC_NAMED((*c)->name)));
        return open_codec(GW_SPEC_NAMED(powersgd));
    }
    for (const gw_spec *s = list->parts; s; s = s->next)
        GW_TRY(open_codec(*s));
    return GW_OK;
}

static gw_err codec_measure(gw_bench_run *run, bool *own) {
    gw_rounds rounds = {.comm = run->place.comm, .seed = KEY, .once = codec_one_turn};
    (void)own;
    GW_TRY(gw_simd_pick(&b.simd));
    if (b.scale == 1)
        gw_flush_denormals();
    GW_TRY(gw_alloc(&b.x, b.sizes.most, 1));
    GW_TRY(gw_alloc(&b.y, b.sizes.most, 1));
    for (size_t i = 0; i < b.sizes.most / sizeof(float); i++) {
        double scale = b.scale * 1e-3 * exp2(4 * gw_rng_unit(KEY + 1, i / 4096));
        int zero = gw_rng_u64(KEY + 2, i) >> 61 == 0;
        b.x[i] = zero ? 0.0f : (float)(scale * gw_rng_normal(KEY, i));
    }
    GW_TRY(gw_alloc(&b.rows, (size_t)(b.codecs * b.sizes.n), sizeof *b.rows));
    for (int s = 0; s < b.sizes.n; s++)
        for (int c = 0; c < b.codecs; c++) {
            row *r = &b.rows[b.n_rows++];
            GW_TRY(codec_row_open(r, c, b.sizes.bytes[s]));
            GW_TRY(codec_row_error(r));
        }
    for (int rep = 0; rep < b.repeats; rep++)
        GW_TRY(gw_rounds_next(&rounds, OPS * b.n_rows, NULL, NULL));
    return GW_OK;
}

static void codec_release(void) {
    for (row *r = b.rows; r < b.rows + b.n_rows; r++) {
        free(r->wire);
        free(r->v);
        free(r->e);
        gw_lowrank_close(&r->low);
        free(r->p);
        free(r->q);
        for (int op = 0; op < OPS; op++) {
            gw_samples_free(&r->copy_s[op]);
            gw_samples_free(&r->run_s[op]);
        }
    }
    for (int c = 0; c < b.codecs; c++)
        gw_codec_close(&b.codec[c]); /* zeroed, where there is none */
    free(b.rows);
    free(b.x);
    free(b.y);
}

const gw_benchmark gw_bench_codec = {
    .name = "codec",
    .summary = "what each codec costs and keeps, against memcpy (one rank)",
    .opts = opts,
    .config = &b,
    .notes = notes,
    .prepare = codec_prepare,
    .measure = codec_measure,
    .report = codec_report,
    .alone = true,
    .denormals = true,
    .release = codec_release,
};
