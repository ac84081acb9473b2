/** What compression does to the gradients of a run. On request, compare the exchanged gradient with
 *  the exact one in a sample of steps, layer by layer. Always, if error feedback is on, watch the
 *  residual, which must not grow without bound. */
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
    double bits;           /* per element encoded in the epoch; NaN: nothing was encoded */
} gw_codec_row;

/** Check that steps can be compared. GW_ERR_USAGE: the strategy does not return the exchanged
 *  gradient. No communication. */
gw_err gw_codec_stats_check(const struct gw_session *session, int every);

/** Open for an open session, which must outlive the stats' use: compare each `every`-th step (0:
 *  none, only watch the residual). `files` get codec.csv, at rank 0; NULL: no file. GW_ERR_USAGE:
 *  the strategy does not return the exchanged gradient. Collective. */
gw_err gw_codec_stats_open(gw_codec_stats **out, MPI_Comm comm, struct gw_session *session,
                           int every, gw_rows *files);
void gw_codec_stats_close(gw_codec_stats *st);

/** True if nothing may be pending after this step (1..). */
bool gw_codec_stats_settles(const gw_codec_stats *st, int64_t step);

/** Before step number `step`. */
void gw_codec_stats_begin(gw_codec_stats *st, int64_t step);

/** Call after step `step`, between batches. *warning: a line that names the layer whose residual
 * has grown out of bounds, valid till the next call; else untouched. Collective. */
gw_err gw_codec_stats_end(gw_codec_stats *st, int64_t step, const char **warning);

/** Between steps: save or load what has been collected in the epoch so far, and how the residual
 *  has grown. The statistics that load have the same layers and the same `every`. */
gw_err gw_codec_stats_state(gw_codec_stats *st, gw_io *io);

/** Restart an epoch's statistics: leave out what was encoded so far. */
void gw_codec_stats_restart(gw_codec_stats *st);

/** Set *rows to the epoch's rows, one per layer, valid till the next call, and write them to
 *  codec.csv; NULL if no steps are compared. Collective. */
gw_err gw_codec_stats_epoch(gw_codec_stats *st, int epoch, const gw_codec_row **rows);

#endif
