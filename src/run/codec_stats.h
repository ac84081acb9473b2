/** What compression does to the gradients of a run: on request, a sample of steps in which the
 *  exchanged gradient is compared with the exact one, layer by layer; and always, where error
 *  feedback is on, a watch over the residual, which must not grow without bound. */
#ifndef GW_RUN_CODEC_STATS_H
#define GW_RUN_CODEC_STATS_H

#include "base/io.h"
#include "base/rows.h"
#include "base/span.h"

#include <mpi.h>

struct gw_session;

/** codec.csv: rows are gw_codec_row. */
extern const gw_table gw_codec_stats_table;

typedef struct gw_codec_stats gw_codec_stats;

typedef struct gw_codec_stats_setup {
    struct gw_session *session; /* opened; must outlive the stats' use */
    const gw_span *layers;
    int n_layers;
    size_t n;
    int every;      /* compare each `every`-th step; 0: none, only watch the residual */
    gw_rows *files; /* that codec.csv is one of, at rank 0; NULL: no file */
} gw_codec_stats_setup;

/** One layer's figures of an epoch. */
typedef struct gw_codec_row {
    int epoch, layer;
    uint64_t elements;
    const char *codec;     /* of the layer's first tensor */
    int64_t samples;       /* steps compared */
    double relative_error; /* |exchanged - exact| / |exact|, over all samples; NaN: no sample */
    double cosine;         /* between the two */
    double gradient_norm;  /* of the exact mean gradient, root mean square over the samples */
    double residual_norm;  /* at the epoch's end, root mean square over the ranks; NaN: none kept */
    double bits;           /* an element of what was encoded in the epoch; NaN: nothing was */
} gw_codec_row;

/** GW_ERR_USAGE: the strategy does not hand out the exchanged gradient, so that no step can be
 *  compared. No communication. */
gw_err gw_codec_stats_check(const struct gw_session *session, int every);

/** Collective. GW_ERR_USAGE: the strategy does not hand out the exchanged gradient. */
gw_err gw_codec_stats_open(gw_codec_stats **out, MPI_Comm comm, const gw_codec_stats_setup *setup);
void gw_codec_stats_close(gw_codec_stats *st);

/** True if nothing may be pending after this step (1..). */
bool gw_codec_stats_settles(const gw_codec_stats *st, int64_t step);

/** Before step number `step`. */
void gw_codec_stats_begin(gw_codec_stats *st, int64_t step);

/** Collective, between batches, after step `step`. *warning (else untouched): a line that says
 * which layer's residual has grown out of bounds; it stays valid till the next call. */
gw_err gw_codec_stats_end(gw_codec_stats *st, int64_t step, const char **warning);

/** Between steps: save or load what has been collected of the epoch so far, and how the residual
 *  has grown. The statistics that load have the same layers and the same `every`. */
gw_err gw_codec_stats_state(gw_codec_stats *st, gw_io *io);

/** Start an epoch's statistics anew: leave out what was encoded so far. */
void gw_codec_stats_restart(gw_codec_stats *st);

/** Collective: the epoch's rows, to codec.csv, too; NULL if no steps are compared. The rows (one a
 *  layer) stay valid till the next call. */
gw_err gw_codec_stats_epoch(gw_codec_stats *st, int epoch, const gw_codec_row **rows);

#endif
