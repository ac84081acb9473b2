/* Compares exchanged gradients with exact ones, and watches residuals. */
#include "run/codec_stats.h"

#include "base/mem.h"
#include "mpi/agree.h"
#include "mpi/wait.h"
#include "run/session.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WATCH_EVERY = 100, /* steps between two looks at the residual */
    PATIENCE = 5,      /* looks before it is judged: it fills up from zero first */
    GROWTH = 5         /* times, while the number of steps doubles */
};

/* Sums over the samples of an epoch, of one layer. */
typedef struct sums {
    double error2, exact2, got2, dot;
} sums;

struct gw_codec_stats {
    gw_session *session;
    const gw_env *env; /* the session's */
    int every;
    MPI_Comm comm;
    int rank, ranks;
    int64_t samples;
    float *exact, *got; /* arenas: local gradient, later the exact sum; what finish gave */
    gw_span *own;       /* which parts of `got` this rank was given, one a finish */
    int n_own;
    sums *sum;        /* a layer each */
    gw_coded *before; /* bytes coded when the epoch began */
    gw_codec_row *rows;
    double *history; /* residual norms by look: [look * n_layers + layer] */
    int looks, room;
    bool *warned; /* a layer each */
    char warning[256];
    FILE *csv; /* rank 0 */
};

/* ---- taking samples ---- */

static void stats_take_before(void *ctx, const float *grad, gw_span s) {
    gw_codec_stats *st = ctx;
    memcpy(st->exact + s.off, grad + s.off, s.n * sizeof *grad);
}

static void stats_take_after(void *ctx, const gw_update *u) {
    gw_codec_stats *st = ctx;
    if (u->lists)
        memset(st->got + u->own.off, 0, u->own.n * sizeof *st->got);
    for (int l = 0; l < u->n_lists; l++)
        for (size_t i = 0; i < u->lists[l].n; i++)
            st->got[u->lists[l].at[i]] = u->scale * u->lists[l].value[i];
    for (size_t i = u->own.off; !u->lists && i < gw_span_end(u->own); i++)
        st->got[i] = u->scale * u->grad[i];
    if (st->n_own < st->env->n_layers)
        st->own[st->n_own++] = u->own;
}

static bool stats_due(const gw_codec_stats *st, int64_t step) {
    return st->every > 0 && step % st->every == 0;
}

static bool stats_watching(const gw_codec_stats *st, int64_t step) {
    return gw_session_residual(st->session) && step % WATCH_EVERY == 0;
}

bool gw_codec_stats_settles(const gw_codec_stats *st, int64_t step) {
    return stats_due(st, step) || stats_due(st, step + 1) || stats_watching(st, step);
}

void gw_codec_stats_begin(gw_codec_stats *st, int64_t step) {
    if (!stats_due(st, step))
        return;
    st->n_own = 0;
    st->session->tap = (gw_session_tap){st, stats_take_before, stats_take_after};
}

static void stats_add_up(gw_codec_stats *st, int layer, gw_span part) {
    sums *s = &st->sum[layer];
    for (size_t i = part.off; i < gw_span_end(part); i++) {
        double exact = (double)st->exact[i], got = (double)st->got[i];
        s->error2 += (got - exact) * (got - exact);
        s->exact2 += exact * exact;
        s->got2 += got * got;
        s->dot += got * exact;
    }
}

static gw_err stats_compare(gw_codec_stats *st) {
    st->session->tap = (gw_session_tap){0};
    if (st->n_own == 0) /* the step was void, on all ranks: nothing was exchanged */
        return GW_OK;
    enum { PIECE = 1 << 20 }; /* floats: a count that fits an int */
    for (size_t at = 0; at < st->env->n; at += PIECE) {
        size_t left = st->env->n - at;
        GW_TRY(gw_allreduce(MPI_IN_PLACE, st->exact + at, (int)(left < PIECE ? left : PIECE),
                            MPI_FLOAT, MPI_SUM, st->comm));
    }
    for (int o = 0; o < st->n_own; o++)
        for (int l = 0; l < st->env->n_layers; l++)
            stats_add_up(st, l, gw_span_common(st->own[o], st->env->layers[l]));
    st->samples++;
    return GW_OK;
}

/* ---- the residual ---- */

/* The root mean square over the ranks, per layer. */
static gw_err stats_residual_norms(gw_codec_stats *st, double *norms) {
    const float *e = gw_session_residual(st->session);
    for (int l = 0; l < st->env->n_layers; l++) {
        gw_span s = st->env->layers[l];
        norms[l] = 0;
        for (size_t i = s.off; i < gw_span_end(s); i++)
            norms[l] += (double)e[i] * (double)e[i];
    }
    GW_TRY(gw_allreduce(MPI_IN_PLACE, norms, st->env->n_layers, MPI_DOUBLE, MPI_SUM, st->comm));
    for (int l = 0; l < st->env->n_layers; l++)
        norms[l] = sqrt(norms[l] / st->ranks);
    return GW_OK;
}

/* With a bound (Karimireddy et al., ICML 2019: about |g| / delta for a codec that keeps a part
 * delta) the norm levels off, and while it fills up it grows no faster than the steps do. */
static void stats_judge(gw_codec_stats *st, int64_t step, const char **warning) {
    int look = st->looks - 1, half = look / 2, n = st->env->n_layers;
    for (int l = 0; l < n && look >= PATIENCE; l++) {
        double now = st->history[look * n + l], then = st->history[half * n + l];
        if (st->warned[l] || (isfinite(now) && !(now > GROWTH * then)))
            continue;
        st->warned[l] = true;
        snprintf(st->warning, sizeof st->warning,
                 "layer %d: the residual's norm grew from %.3g to %.3g between steps %lld and "
                 "%lld: error feedback does not converge; try --error-feedback dgc, a larger "
                 "ratio or a smaller rate",
                 l, then, now, (long long)(half + 1) * WATCH_EVERY, (long long)step);
        *warning = st->warning;
        return; /* one line at a time: the others' turn comes at the next looks */
    }
}

static gw_err stats_watch(gw_codec_stats *st, int64_t step, const char **warning) {
    int n = st->env->n_layers;
    size_t look = (size_t)n * sizeof *st->history;
    GW_TRY(gw_agree(st->comm, gw_grow(&st->history, &st->room, st->looks + 1, look)));
    GW_TRY(stats_residual_norms(st, st->history + (size_t)st->looks++ * (size_t)n));
    stats_judge(st, step, warning);
    return GW_OK;
}

gw_err gw_codec_stats_end(gw_codec_stats *st, int64_t step, const char **warning) {
    if (stats_due(st, step))
        GW_TRY(stats_compare(st));
    return stats_watching(st, step) ? stats_watch(st, step, warning) : GW_OK;
}

/* ---- saving and loading ---- */

/* `room`: bytes that can hold them. */
static gw_err stats_make_history(gw_codec_stats *st, int64_t looks, size_t room) {
    size_t most = room / sizeof(double) / (size_t)st->env->n_layers;
    if (looks < 0 || looks >= INT_MAX || (size_t)looks > most)
        return gw_fail(GW_ERR_INPUT, "codec stats: %lld looks at the residual", (long long)looks);
    double *history = NULL;
    GW_TRY(gw_alloc(&history, (size_t)(looks + 1) * (size_t)st->env->n_layers, sizeof *history));
    free(st->history);
    st->history = history;
    st->looks = (int)looks;
    st->room = (int)looks + 1;
    return GW_OK;
}

static gw_err stats_samples_state(gw_codec_stats *st, gw_io *io) {
    size_t n = (size_t)st->env->n_layers;
    const gw_coded *now = st->session->coded;
    gw_coded *since = NULL; /* the epoch began; a new session counts from 0 */
    int64_t own = st->n_own;
    GW_TRY(gw_alloc(&since, n, sizeof *since));
    for (size_t l = 0; l < n; l++)
        since[l] =
            (gw_coded){now[l].bytes - st->before[l].bytes, now[l].floats - st->before[l].floats};
    gw_err e = gw_io_field(io, "samples", &st->samples, sizeof st->samples);
    GW_THEN(e, gw_io_field(io, "sums", st->sum, n * sizeof *st->sum));
    GW_THEN(e, gw_io_field(io, "coded", since, n * sizeof *since));
    GW_THEN(e, gw_io_field(io, "spans", &own, sizeof own));
    GW_THEN(e, gw_io_field(io, "own", st->own, n * sizeof *st->own));
    if (e == GW_OK && (own < 0 || own > st->env->n_layers))
        e = gw_fail(GW_ERR_INPUT, "codec stats: %lld spans", (long long)own);
    if (e == GW_OK && gw_io_loading(io))
        for (size_t l = 0; l < n; l++)
            st->before[l] =
                (gw_coded){now[l].bytes - since[l].bytes, now[l].floats - since[l].floats};
    st->n_own = e == GW_OK ? (int)own : 0;
    free(since);
    return e;
}

gw_err gw_codec_stats_state(gw_codec_stats *st, gw_io *io) {
    size_t n = (size_t)st->env->n_layers;
    int64_t looks = st->looks;
    double none = 0; /* an empty field still wants an address */
    GW_TRY(gw_io_field(io, "looks", &looks, sizeof looks));
    if (gw_io_loading(io))
        GW_TRY(stats_make_history(st, looks, gw_io_left(io)));
    GW_TRY(gw_io_field(io, "norms", st->history ? st->history : &none,
                       (size_t)st->looks * n * sizeof *st->history));
    GW_TRY(gw_io_field(io, "warned", st->warned, n * sizeof *st->warned));
    return st->every > 0 ? stats_samples_state(st, io) : GW_OK;
}

/* ---- an epoch ---- */

static double stats_known(double x) {
    return isfinite(x) ? x : NAN;
}

static gw_err stats_reduce_rows(gw_codec_stats *st, int epoch) {
    int n = st->env->n_layers;
    double *norms = NULL;
    const gw_coded *now = st->session->coded;
    GW_TRY(gw_allreduce(MPI_IN_PLACE, st->sum, 4 * n, MPI_DOUBLE, MPI_SUM, st->comm));
    GW_TRY(gw_agree(st->comm, gw_alloc(&norms, (size_t)n, sizeof *norms)));
    bool kept = gw_session_residual(st->session);
    gw_err e = kept ? stats_residual_norms(st, norms) : GW_OK;
    for (int l = 0; l < n && e == GW_OK; l++) {
        const sums *s = &st->sum[l];
        uint64_t coded[2] = {now[l].bytes - st->before[l].bytes,
                             now[l].floats - st->before[l].floats};
        e = gw_allreduce(MPI_IN_PLACE, coded, 2, MPI_UINT64_T, MPI_SUM, st->comm);
        /* Where all ranks are given all of it, each sum is there as many times as there are ranks:
         * in ratios that cancels, in the norm `copies` takes it out. */
        double copies = 0;
        for (int o = 0; o < st->n_own; o++)
            copies += (double)gw_span_common(st->own[o], st->env->layers[l]).n;
        GW_THEN(e, gw_allreduce(MPI_IN_PLACE, &copies, 1, MPI_DOUBLE, MPI_SUM, st->comm));
        copies /= (double)st->env->layers[l].n;
        st->rows[l] = (gw_codec_row){
            .epoch = epoch,
            .layer = l,
            .codec = gw_session_codec_of(st->session, st->env->layers[l].off),
            .elements = st->env->layers[l].n,
            .samples = st->samples,
            .relative_error = stats_known(sqrt(s->error2 / s->exact2)),
            .cosine = stats_known(s->dot / sqrt(s->exact2 * s->got2)),
            .gradient_norm = stats_known(sqrt(s->exact2 / copies / (double)st->samples)),
            .residual_norm = kept ? stats_known(norms[l]) : NAN,
            .bits = coded[1] ? 8 * (double)coded[0] / (double)coded[1] : NAN};
    }
    free(norms);
    return e;
}

static const gw_column columns[] = {
    GW_COLUMN(gw_codec_row, "epoch", INT, epoch),
    GW_COLUMN(gw_codec_row, "layer", INT, layer),
    GW_COLUMN(gw_codec_row, "codec", QUOTED, codec),
    GW_COLUMN(gw_codec_row, "elements", U64, elements),
    GW_COLUMN(gw_codec_row, "samples", I64, samples),
    GW_COLUMN_REAL(gw_codec_row, "relative_error", relative_error, 6),
    GW_COLUMN_REAL(gw_codec_row, "cosine", cosine, 6),
    GW_COLUMN_REAL(gw_codec_row, "gradient_norm", gradient_norm, 6),
    GW_COLUMN_REAL(gw_codec_row, "residual_norm", residual_norm, 6),
    GW_COLUMN_REAL(gw_codec_row, "bits_per_element", bits, 6),
};
const gw_table gw_codec_stats_table = GW_TABLE("codec.csv", gw_codec_row, columns);

void gw_codec_stats_restart(gw_codec_stats *st) {
    if (st->every > 0)
        memcpy(st->before, st->session->coded, (size_t)st->env->n_layers * sizeof *st->before);
}

gw_err gw_codec_stats_epoch(gw_codec_stats *st, int epoch, const gw_codec_row **rows) {
    *rows = NULL;
    if (st->every == 0)
        return GW_OK;
    GW_TRY(stats_reduce_rows(st, epoch));
    memset(st->sum, 0, (size_t)st->env->n_layers * sizeof *st->sum);
    gw_codec_stats_restart(st);
    st->samples = 0;
    *rows = st->rows;
    return gw_agree(st->comm, gw_table_write(&gw_codec_stats_table, st->csv, st->rows,
                                             (size_t)st->env->n_layers));
}

/* ---- life ---- */

static gw_err stats_allocate(gw_codec_stats *st, gw_rows *files) {
    size_t n = (size_t)st->env->n_layers;
    GW_TRY(gw_alloc(&st->warned, n, sizeof *st->warned));
    if (st->every == 0)
        return GW_OK;
    GW_TRY(gw_alloc(&st->exact, st->env->n, sizeof *st->exact));
    GW_TRY(gw_alloc(&st->got, st->env->n, sizeof *st->got));
    GW_TRY(gw_alloc(&st->own, n, sizeof *st->own));
    GW_TRY(gw_alloc(&st->sum, n, sizeof *st->sum));
    GW_TRY(gw_alloc(&st->before, n, sizeof *st->before));
    GW_TRY(gw_alloc(&st->rows, n, sizeof *st->rows));
    gw_codec_stats_restart(st);
    if (!files || st->rank != 0)
        return GW_OK;
    return gw_rows_open(files, &gw_codec_stats_table, &st->csv, NULL);
}

gw_err gw_codec_stats_check(const gw_session *session, int every) {
    const gw_strategy_ops *strategy = session->strategy.ops;
    if (every == 0 || strategy->gives <= GW_GIVES_ROOT)
        return GW_OK;
    return gw_fail(GW_ERR_USAGE,
                   "compress-stats compares the exchanged gradient of a step with the exact one, "
                   "and --comm %s does not update by it: remove --compress-stats",
                   strategy->head.name);
}

gw_err gw_codec_stats_open(gw_codec_stats **out, MPI_Comm comm, gw_session *session, int every,
                           gw_rows *files) {
    GW_TRY(gw_codec_stats_check(session, every));
    gw_codec_stats *st = NULL;
    gw_err e = gw_alloc(&st, 1, sizeof *st);
    if (e == GW_OK) {
        st->session = session;
        st->env = &session->env;
        st->every = every;
        st->comm = comm;
        e = gw_comm_place(comm, &st->rank, &st->ranks);
    }
    GW_THEN(e, stats_allocate(st, files));
    e = gw_agree(comm, e);
    GW_OPENED(e, out, st, gw_codec_stats_close);
}

void gw_codec_stats_close(gw_codec_stats *st) {
    if (!st)
        return;
    free(st->exact);
    free(st->got);
    free(st->own);
    free(st->sum);
    free(st->before);
    free(st->rows);
    free(st->history);
    free(st->warned);
    free(st);
}
