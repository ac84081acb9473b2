#include "cli/show/show_steps.h"

#include "base/mem.h"
#include "base/rng.h"
#include "base/stats.h"
#include "cli/show/show_csv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 16, RANKS = 1 << 20 };

enum {
    RANK,
    STEP,
    CLEAN,
    WALL,
    DATA,
    FORWARD,
    BACKWARD,
    UPDATE,
    CORE_CTR,
    MEMORY_CTR,
    CORE_TWIN,
    MEMORY_TWIN,
    CORE_MODEL,
    MEMORY_MODEL,
    ENCODE,
    DECODE,
    CODEC_CTR,
    CODEC_TWIN,
    POST,
    POLL,
    WAIT,
    SKEW,
    TRANSFER,
    CHECKPOINT,
    OTHER,
    INFLIGHT,
    WIRE,
    COLUMNS
};

static const char *const names[COLUMNS + 1] = {[RANK] = "rank",
                                               [STEP] = "step",
                                               [CLEAN] = "clean",
                                               [WALL] = "wall_s",
                                               [DATA] = "data_s",
                                               [FORWARD] = "forward_s",
                                               [BACKWARD] = "backward_s",
                                               [UPDATE] = "update_s",
                                               [CORE_CTR] = "core_ctr_s",
                                               [MEMORY_CTR] = "memory_ctr_s",
                                               [CORE_TWIN] = "core_twin_s",
                                               [MEMORY_TWIN] = "memory_twin_s",
                                               [CORE_MODEL] = "core_model_lo_s",
                                               [MEMORY_MODEL] = "memory_model_lo_s",
                                               [ENCODE] = "encode_s",
                                               [DECODE] = "decode_s",
                                               [CODEC_CTR] = "memory_codec_ctr_s",
                                               [CODEC_TWIN] = "memory_codec_twin_s",
                                               [POST] = "mpi_post_s",
                                               [POLL] = "mpi_poll_s",
                                               [WAIT] = "mpi_wait_s",
                                               [SKEW] = "wait_skew_s",
                                               [TRANSFER] = "transfer_s",
                                               [CHECKPOINT] = "checkpoint_s",
                                               [OTHER] = "other_s",
                                               [INFLIGHT] = "inflight_s",
                                               [WIRE] = "wire_bytes"};

typedef struct reader {
    gw_show_csv csv;
    gw_show_steps *out;
    int ranks;
    double since; /* up to this step it may be others */
    int64_t warmup;
    double step[GW_SHOW_FIGURES]; /* of the step that is being read */
    bool clean;
    double *own, *own_sum; /* a rank each: in this step; over the steps counted */
    int64_t counted;       /* steps that are in own_sum, and the samples are drawn from */
    double (*kept)[GW_SHOW_FIGURES];
    int64_t n_kept, room;
} reader;

/* Two sources that each know a part: a part that is absent adds nothing; NaN if both are. */
static double both(double a, double b) {
    return isnan(a) ? b : isnan(b) ? a : a + b;
}

/* What one row says of the step; *own: the rank's time without MPI. */
static void derive(const double *v, double *f, double *own) {
    double compute = v[FORWARD] + v[BACKWARD] + v[UPDATE], mpi = v[POST] + v[POLL] + v[WAIT];
    double core = both(v[CORE_TWIN], v[CORE_MODEL]), memory = both(v[MEMORY_TWIN], v[MEMORY_MODEL]);
    f[GW_SHOW_WALL] = v[WALL];
    f[GW_SHOW_DATA] = v[DATA];
    f[GW_SHOW_COMPUTE] = compute;
    f[GW_SHOW_PRODUCTS] = v[FORWARD] + v[BACKWARD];
    f[GW_SHOW_CORE_CTR] = v[CORE_CTR];
    f[GW_SHOW_MEMORY_CTR] = v[MEMORY_CTR];
    f[GW_SHOW_CORE_LEAST] = core;
    f[GW_SHOW_MEMORY_LEAST] = memory;
    f[GW_SHOW_EITHER] = compute - core - memory;
    f[GW_SHOW_CODEC] = v[ENCODE] + v[DECODE];
    f[GW_SHOW_CODEC_MEMORY_CTR] = v[CODEC_CTR];
    f[GW_SHOW_CODEC_MEMORY_TWIN] = v[CODEC_TWIN];
    f[GW_SHOW_EXPOSED] = mpi;
    f[GW_SHOW_WAITING] = v[SKEW];
    f[GW_SHOW_TRANSFER] = v[TRANSFER];
    f[GW_SHOW_MPI_REST] = mpi - v[SKEW] - v[TRANSFER];
    f[GW_SHOW_CHECKPOINT] = v[CHECKPOINT];
    f[GW_SHOW_OTHER] = v[OTHER];
    f[GW_SHOW_INFLIGHT] = v[INFLIGHT];
    f[GW_SHOW_WIRE_BYTES] = v[WIRE];
    *own = v[WALL] - mpi;
}

static void add_rank(reader *r, const double *v) {
    int rank = (int)v[RANK];
    double f[GW_SHOW_FIGURES];
    derive(v, f, &r->own[rank]);
    r->clean = (rank == 0 || r->clean) && v[CLEAN] != 0; /* blank: nobody knows, so it counts */
    r->out->judged |= !isnan(v[CLEAN]);
    for (int i = 0; i < GW_SHOW_FIGURES; i++) {
        double before = rank == 0 ? 0 : r->step[i];
        r->step[i] = i == GW_SHOW_WALL ? fmax(before, f[i]) : before + f[i] / r->ranks;
    }
}

/* Algorithm R (Vitter, "Random sampling with a reservoir", ACM TOMS 11, 1985): each step counted is
 * among those kept with the same probability. */
static gw_err keep(reader *r) {
    int64_t slot = r->counted;
    if (slot >= MOST) {
        slot = (int64_t)(gw_rng_unit(MOST, (uint64_t)slot) * (double)(slot + 1));
        if (slot >= MOST)
            return GW_OK;
    } else if (slot == r->room) {
        int64_t room = r->room ? 2 * r->room : 1024;
        void *wide = realloc(r->kept, (size_t)room * sizeof *r->kept);
        if (!wide)
            return gw_fail(GW_ERR_NOMEM, "show: out of memory");
        r->kept = wide;
        r->room = room;
    }
    memcpy(r->kept[slot], r->step, sizeof r->step);
    r->n_kept = slot < r->n_kept ? r->n_kept : slot + 1;
    return GW_OK;
}

/* Contaminated steps count as long as there is no clean one. */
static gw_err end_step(reader *r) {
    gw_show_steps *out = r->out;
    out->steps++;
    if (r->clean && out->clean++ == 0) {
        r->counted = r->n_kept = 0;
        memset(r->own_sum, 0, (size_t)r->ranks * sizeof *r->own_sum);
    }
    if (!r->clean && out->clean > 0)
        return GW_OK;
    GW_TRY(keep(r));
    r->counted++;
    for (int i = 0; i < r->ranks; i++)
        r->own_sum[i] += r->own[i];
    return GW_OK;
}

/* All rows of the step are there, of `n` ranks. */
static gw_err close_step(reader *r, int n) {
    if (n != r->ranks)
        r->out->others++;
    else if (r->out->warmup < r->warmup)
        r->out->warmup++;
    else
        return end_step(r);
    return GW_OK;
}

static gw_err read_rows(reader *r) {
    double v[COLUMNS], step = NAN;
    for (int n = 0;;) { /* rows of the step so far */
        bool more, free = step <= r->since, full = n == r->ranks || free;
        GW_TRY(gw_show_csv_next(&r->csv, v, &more));
        if (n > 0 && full && (!more || v[RANK] == 0)) {
            GW_TRY(close_step(r, n));
            n = 0;
        }
        if (!more && n == 0)
            return GW_OK;
        if (!more)
            return gw_fail(GW_ERR_INPUT,
                           "show: %s: ends after rank %d of %d in step %.0f: half-written",
                           r->csv.path, n - 1, r->ranks, step);
        if (n == 0)
            step = v[STEP];
        if (v[RANK] != n || v[STEP] != step || isnan(v[WALL]) || (n == r->ranks && !free))
            return gw_fail(
                GW_ERR_INPUT,
                "show: %s, line %lld: not the row of rank %d, step %.0f, with a wall_s: of "
                "another run, or damaged",
                r->csv.path, r->csv.at, n % r->ranks, step);
        if (n < r->ranks)
            add_rank(r, v);
        n++;
    }
}

static gw_err medians(reader *r) {
    double *column = NULL;
    GW_TRY(gw_alloc(&column, (size_t)r->n_kept, sizeof *column));
    for (int f = 0; f < GW_SHOW_FIGURES; f++) {
        int n = 0;
        for (int64_t i = 0; i < r->n_kept; i++)
            if (!isnan(r->kept[i][f]))
                column[n++] = r->kept[i][f];
        r->out->n[f] = n;
        r->out->median[f] = n ? gw_stats_median(column, n) : NAN;
    }
    free(column);
    return GW_OK;
}

static void name_slowest(reader *r) {
    gw_show_steps *out = r->out;
    out->slowest = -1;
    if (r->ranks == 1 || r->counted == 0 || isnan(r->own_sum[0]))
        return;
    for (int i = 0; i < r->ranks; i++) {
        double mean = r->own_sum[i] / (double)r->counted;
        out->own_s += mean / r->ranks;
        if (out->slowest < 0 || mean > out->slowest_s) {
            out->slowest = i;
            out->slowest_s = mean;
        }
    }
}

static gw_err read_all(reader *r, const char *dir) {
    GW_TRY(gw_show_csv_open(&r->csv, dir, names));
    GW_TRY(gw_alloc(&r->own, (size_t)r->ranks, sizeof *r->own));
    GW_TRY(gw_alloc(&r->own_sum, (size_t)r->ranks, sizeof *r->own_sum));
    GW_TRY(read_rows(r));
    GW_TRY(medians(r));
    name_slowest(r);
    r->out->drawn = r->n_kept;
    r->out->contaminated = r->out->steps > 0 && r->out->clean == 0;
    return GW_OK;
}

gw_err gw_show_steps_read(gw_show_steps *out, const char *dir, int64_t ranks, int64_t since,
                          int64_t warmup) {
    *out = (gw_show_steps){0};
    if (ranks < 1 || ranks > RANKS)
        return gw_fail(GW_ERR_INPUT, "show: %s/run.json: %lld ranks cannot be", dir,
                       (long long)ranks);
    reader r = {.out = out, .ranks = (int)ranks, .since = (double)since, .warmup = warmup};
    gw_err e = read_all(&r, dir);
    gw_show_csv_close(&r.csv);
    free(r.own);
    free(r.own_sum);
    free(r.kept);
    return e;
}
